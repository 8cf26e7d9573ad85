"""Real engines, as they were recorded, behind a real gateway: every client gets its own API, exactly.

Recordings are those of tests/fixtures/engines; tests/recording says how they are made.
"""

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from images.gateway.tests.support import (
    CHAT,
    ENGINE_KEY,
    Answer,
    Gateway,
    environment,
    eventually,
    new_id,
    policy_file,
    running_gateway,
)
from recording.asked import LISTED, OTHER_MODEL, QUESTION, STORY
from recording.recorded import Recording, kept
from recording.replay import Replay, replaying

COMPLETIONS, MODELS = "/v1/completions", "/v1/models"
MESSAGES, OLLAMA_CHAT, GENERATE = "/v1/messages", "/api/chat", "/api/generate"
ALIAS = "chat-model"
RECORDINGS = kept()
Factory = pytest.TempPathFactory


@pytest.fixture(scope="module", params=sorted(RECORDINGS))
def engine(request: pytest.FixtureRequest) -> Iterator[Replay]:
    with replaying(RECORDINGS[request.param], ENGINE_KEY) as running:
        yield running
        assert running.unforeseen == []


@pytest.fixture(scope="module")
def recording(engine: Replay) -> Recording:
    return engine.recording


@pytest.fixture(scope="module")
def gateway(engine: Replay, tmp_path_factory: Factory) -> Iterator[Gateway]:
    """With an alias for the model, as a profile has it; it leaves counting to the engine."""
    folder = tmp_path_factory.mktemp("recorded")
    model = {"public": ALIAS, "engine": engine.recording.engine.model}
    policy = policy_file(folder, model=model)
    with running_gateway(environment(folder, engine.url, POLICY_FILE=policy)) as running:
        yield running


def _ask(gateway: Gateway, path: str, **fields: Any) -> Answer:
    said = {"model": ALIAS, "temperature": 0, **fields}
    if path.startswith("/api"):
        said = {"model": ALIAS, "options": {"temperature": 0}, **fields}
    return gateway.ask("POST", path, json.dumps(said).encode())


def _talk(content: str = QUESTION) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def _events(answer: Answer) -> list[Any]:
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (
        200,
        "text/event-stream",
    )
    *events, last, rest = answer.body.decode().split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def _aliased(said: Any) -> Any:
    return {**said, "model": ALIAS}


def _whole_chat(recording: Recording) -> Any:
    return _aliased(recording.answers["chat"].json())


def _less_its_own(answer: dict[str, Any]) -> dict[str, Any]:
    """Without what differs between two answers to one question: one was recorded as a stream."""
    own = dict.fromkeys({"id", "created", "timings"} & answer.keys(), "its own")
    usage = {**answer["usage"], "prompt_tokens_details": "its own"}
    return {**answer, **own, "usage": usage}


def _text(events: list[Any]) -> str:
    return "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])


# --- OpenAI's ---


def test_models_are_the_one_that_the_profile_names(gateway: Gateway) -> None:
    said = gateway.ask("GET", MODELS).json()
    assert [model["id"] for model in said["data"]] == [ALIAS]


def test_a_whole_chat_is_the_engines_with_its_name_changed(
    gateway: Gateway, recording: Recording
) -> None:
    answer = _ask(gateway, CHAT, messages=_talk(), max_tokens=32)
    assert _less_its_own(answer.json()) == _less_its_own(_whole_chat(recording))
    read = ChatCompletion.model_validate(answer.json(), strict=True)
    assert (read.object, read.choices[0].index) == ("chat.completion", 0)
    assert read.choices[0].finish_reason == "stop"
    assert read.usage is not None
    assert read.usage.total_tokens == read.usage.prompt_tokens + read.usage.completion_tokens


def test_a_stream_has_usage_for_who_asks_and_else_none(
    gateway: Gateway, recording: Recording
) -> None:
    spoken = [_aliased(event) for event in recording.answers["chat, stream with usage"].events()]
    asked: dict[str, Any] = {"messages": _talk(), "max_tokens": 32, "stream": True}
    with_usage = _events(_ask(gateway, CHAT, **asked, stream_options={"include_usage": True}))
    assert with_usage == spoken
    assert (with_usage[-1]["choices"], with_usage[-1]["usage"]["prompt_tokens"] > 0) == ([], True)
    without = _events(_ask(gateway, CHAT, **asked))
    assert without == spoken[:-1]
    assert not any(event.get("usage") for event in without)
    for event in with_usage:
        read = ChatCompletionChunk.model_validate(event, strict=True)
        assert read.object == "chat.completion.chunk"
    assert len({event["id"] for event in with_usage}) == 1
    assert _text(without) == recording.answers["chat"].json()["choices"][0]["message"]["content"]


def test_what_was_cut_short_says_so(gateway: Gateway, recording: Recording) -> None:
    asked: dict[str, Any] = {"messages": _talk(LISTED), "max_tokens": 3}
    whole = _ask(gateway, CHAT, **asked).json()
    events = _events(_ask(gateway, CHAT, **asked, stream=True))
    assert whole["choices"][0]["finish_reason"] == "length"
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 3
    assert _text(events) == whole["choices"][0]["message"]["content"]


def test_a_completion_is_the_engines_too(gateway: Gateway, recording: Recording) -> None:
    asked: dict[str, Any] = {"prompt": QUESTION, "max_tokens": 32}
    answer = _ask(gateway, COMPLETIONS, **asked).json()
    spoken = _aliased(recording.answers["completion"].json())
    assert _less_its_own(answer) == _less_its_own(spoken)
    Completion.model_validate(answer, strict=True)
    events = _events(
        _ask(gateway, COMPLETIONS, **asked, stream=True, stream_options={"include_usage": True})
    )
    assert events[-1]["usage"]["completion_tokens"] == answer["usage"]["completion_tokens"]
    assert "".join(c["text"] for e in events for c in e["choices"]) == answer["choices"][0]["text"]


# --- Ollama's ---


def _usage(recording: Recording, name: str = "chat, stream with usage") -> Any:
    return recording.answers[name].events()[-1]["usage"]


@pytest.mark.parametrize(
    ("path", "asked"), [(OLLAMA_CHAT, {"messages": _talk()}), (GENERATE, {"prompt": QUESTION})]
)
def test_ollamas_answer_whole_and_in_lines(
    gateway: Gateway, recording: Recording, path: str, asked: dict[str, Any]
) -> None:
    spoken = recording.answers["chat"].json()

    def said(line: Any) -> str:
        return str(line["message"]["content"] if path == OLLAMA_CHAT else line["response"])

    answer = _ask(gateway, path, **asked, stream=False)
    assert answer.headers["content-type"].startswith("application/json")
    whole = answer.json()
    assert said(whole) == spoken["choices"][0]["message"]["content"]
    answer = _ask(gateway, path, **asked)
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.body.decode().removesuffix("\n").split("\n")]
    assert "".join(map(said, lines)) == said(whole)
    assert [line["done"] for line in lines] == [*[False] * (len(lines) - 1), True]
    usages = (spoken["usage"], _usage(recording))
    for last, usage in zip((whole, lines[-1]), usages, strict=True):
        assert (last["model"], last["done"], last["done_reason"]) == (ALIAS, True, "stop")
        counted = (usage["prompt_tokens"], usage["completion_tokens"])
        assert (last["prompt_eval_count"], last["eval_count"]) == counted
        assert datetime.fromisoformat(last["created_at"]).utcoffset() == timedelta(0)


# --- Anthropic's ---


def test_anthropics_message_whole_and_in_events(gateway: Gateway, recording: Recording) -> None:
    spoken = recording.answers["chat"].json()
    text = spoken["choices"][0]["message"]["content"]
    asked: dict[str, Any] = {"messages": _talk(), "max_tokens": 32}
    whole = _ask(gateway, MESSAGES, **asked).json()
    assert (whole["type"], whole["role"], whole["model"]) == ("message", "assistant", ALIAS)
    assert whole["content"] == [{"type": "text", "text": text}]
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("end_turn", None)
    assert whole["usage"]["output_tokens"] == spoken["usage"]["completion_tokens"]

    answer = _ask(gateway, MESSAGES, **asked, stream=True)
    events = [
        event.split("\n") for event in answer.body.decode().removesuffix("\n\n").split("\n\n")
    ]
    named = [(name.removeprefix("event: "), json.loads(data[6:])) for name, data in events]
    assert all(name == said["type"] for name, said in named)
    names = [name for name, _ in named if name not in {"content_block_delta", "ping"}]
    assert names == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    deltas = [said["delta"]["text"] for name, said in named if name == "content_block_delta"]
    assert "".join(deltas) == text
    (end,) = [said for name, said in named if name == "message_delta"]
    assert end["delta"]["stop_reason"] == "end_turn"
    assert end["usage"]["output_tokens"] == _usage(recording)["completion_tokens"]


# --- what is refused ---


def _errors(path: str, answer: Answer) -> tuple[str, str | None]:
    """Message, and type or code where the API has one."""
    said = answer.json()
    if path == CHAT:
        assert set(said["error"]) == {"message", "type", "param", "code"}
        return said["error"]["message"], said["error"]["code"]
    if path == MESSAGES:
        assert said["type"] == "error"
        return said["error"]["message"], said["error"]["type"]
    assert set(said) == {"error"}
    return said["error"], None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "code"),
    [(CHAT, "context_length_exceeded"), (MESSAGES, "invalid_request_error"), (OLLAMA_CHAT, None)],
)
def test_a_prompt_that_only_the_engine_finds_too_long_is_refused_in_the_clients_words(
    gateway: Gateway, recording: Recording, path: str, code: str | None, *, stream: bool
) -> None:
    context = recording.engine.context_tokens
    needed = {} if path == OLLAMA_CHAT else {"max_tokens": 32}
    long = _talk("word " * (context + 1))
    answer = _ask(gateway, path, messages=long, stream=stream, **needed)
    assert answer.status == 400
    message, found = _errors(path, answer)
    assert found == code
    # An engine that says it in OpenAI's own form is not corrected there.
    if path != CHAT or recording.engine.name != "kt-legacy":
        assert message.startswith(f"This model's context is {context} tokens; the prompt has ")
    prompt = re.search(r"prompt has (\d+)", message)
    assert prompt is not None
    assert int(prompt[1]) > context
    assert str(context) in message


@pytest.mark.parametrize("path", [CHAT, MESSAGES, OLLAMA_CHAT])
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"model": ', 400),
        (b'{"model": "chat-model", "max_tokens": 9, "messages": "Hi"}', 400),
        (
            b'{"model": "another", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}',
            404,
        ),
    ],
    ids=["no JSON", "wrong type", "unknown model"],
)
def test_what_no_engine_needs_to_see_is_refused_before_it(
    gateway: Gateway, engine: Replay, path: str, body: bytes, status: int
) -> None:
    before = len(engine.asked)
    answer = gateway.ask("POST", path, body)
    assert answer.status == status
    assert _errors(path, answer)[0]
    assert len(engine.asked) == before


def test_without_an_alias_models_and_refusals_are_the_engines_in_one_form(
    engine: Replay, recording: Recording, tmp_path_factory: Factory
) -> None:
    """llama.cpp answers whatever the model is called."""
    folder = tmp_path_factory.mktemp("plain")
    with running_gateway(environment(folder, engine.url)) as plain:
        assert plain.ask("GET", MODELS).json() == recording.answers["models"].json()
        said = {"model": OTHER_MODEL, "messages": _talk(), "temperature": 0, "max_tokens": 32}
        answer = plain.ask("POST", CHAT, json.dumps(said).encode())
    spoken = recording.answers["unknown model"]
    assert answer.status == spoken.status
    if spoken.status == 200:
        assert answer.json() == spoken.json()
    else:
        assert _errors(CHAT, answer)[0] == spoken.json()["error"]["message"]


def test_an_engine_that_refuses_the_gateways_key_is_not_blamed_on_the_client(
    engine: Replay, tmp_path_factory: Factory
) -> None:
    folder = tmp_path_factory.mktemp("other-key")
    env = environment(folder, engine.url)
    (folder / "UPSTREAM_KEY_FILE").write_text("another-key")
    with running_gateway(env) as other:
        for path in (CHAT, MESSAGES, OLLAMA_CHAT):
            needed = {} if path == OLLAMA_CHAT else {"max_tokens": 32}
            answer = _ask(other, path, messages=_talk(), stream=False, **needed)
            assert answer.status == 502, path
            assert _errors(path, answer)[0].startswith("The engine does not accept the gateway's")
        assert other.ask("GET", MODELS).status == 502


# --- two at once, and leaving ---


@pytest.fixture(params=[True, False], ids=["holds", "does not hold"])
def crowded(
    engine: Replay, tmp_path_factory: Factory, request: pytest.FixtureRequest
) -> Iterator[tuple[Gateway, bool]]:
    """Two at once, whatever the engine can: its own word decides. Does the line wait for it?"""
    folder = tmp_path_factory.mktemp("crowded")
    model = {"public": ALIAS, "engine": engine.recording.engine.model}
    queue = {"capacity": 2, "hold_on_engine_loss": request.param}
    policy = policy_file(folder, model=model, queue=queue)
    engine.telling.clear()
    engine.met.clear()
    engine.story_until = 4
    with running_gateway(environment(folder, engine.url, POLICY_FILE=policy)) as running:
        yield running, request.param
    engine.story_until = None


def _story() -> bytes:
    said = {"model": ALIAS, "messages": _talk(STORY), "stream": True, "temperature": 0}
    return json.dumps(said).encode()


def test_an_engine_for_one_at_a_time_is_waited_for_or_the_client_told_to_come_again(
    engine: Replay, recording: Recording, crowded: tuple[Gateway, bool]
) -> None:
    gateway, holds = crowded
    with gateway.chat(_story(), new_id()) as first:
        first.read_until(b"data: ")
        assert engine.telling.wait(20)
        second = _ask(gateway, CHAT, messages=_talk(), max_tokens=32)
        if recording.second.status == 200:
            assert _less_its_own(second.json()) == _less_its_own(_whole_chat(recording))
            return
        if holds:
            assert _less_its_own(second.json()) == _less_its_own(_whole_chat(recording))
        else:
            assert (second.status, _errors(CHAT, second)[1]) == (503, "engine_busy")
            assert int(second.headers["retry-after"]) > 0
        told = first.read_to_end_of_stream()
    assert told.endswith(b"data: [DONE]\n\n")


def test_a_client_that_leaves_takes_its_request_from_the_engine(
    engine: Replay, gateway: Gateway
) -> None:
    engine.left.clear()
    engine.met.clear()
    engine.story_until = 4
    client = gateway.chat(_story(), new_id())
    client.read_until(b"data: ")
    client.leave()
    assert engine.left.wait(20)
    engine.story_until = None
    assert eventually(lambda: gateway.metric("gateway_requests_running") == 0)


def test_recordings_show_that_each_engine_is_free_once_its_client_has_left(
    recording: Recording,
) -> None:
    assert recording.left_after
    assert recording.next.status == 200
    spoken = recording.answers["chat"].json()["choices"][0]["message"]
    assert recording.next.json()["choices"][0]["message"] == spoken
    if recording.engine.slots > 1:
        assert recording.second.status == 200
        assert not recording.second_waited

"""All APIs on their way through a real gateway: one model, one alias, one kind of error each."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from images.gateway.tests.dialect_support import DONE, USAGE, chunk
from images.gateway.tests.pacing import paced_words
from images.gateway.tests.shaping_support import TOKENIZER
from images.gateway.tests.support import (
    CHAT,
    Answer,
    Gateway,
    environment,
    policy_file,
    running_gateway,
)
from paced_engine.running import RunningEngine

CONTEXT_TOKENS = 4000
THOUGHT = [
    chunk({"role": "assistant", "content": "<think>北"}),
    chunk({"content": "京</thi"}),
    chunk({"content": "nk>\n\n是 "}),
    chunk({"content": "🐼"}, "stop"),
    USAGE,
    DONE,
]


@pytest.fixture(scope="module")
def governed(engine: RunningEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("governed")
    model = {
        "public": "chat",
        "engine": "paced",
        "max_tokens": 100,
        "context_tokens": CONTEXT_TOKENS,
        "tokenizer_file": str(TOKENIZER),
        "think": "split",
    }
    policy = policy_file(folder, model=model, capabilities={"tools": False})
    with running_gateway(environment(folder, engine.url, POLICY_FILE=policy)) as running:
        yield running


def _ask(gateway: Gateway, path: str, **fields: Any) -> Answer:
    return gateway.ask("POST", path, json.dumps({"model": "chat", **fields}).encode())


def _paced(**paced: Any) -> list[dict[str, str]]:
    return [{"role": "user", "content": "paced: " + json.dumps({"tick_s": 0.0, **paced})}]


def _raw(chunks: list[bytes]) -> list[dict[str, str]]:
    return _paced(raw_b64=[base64.b64encode(each).decode() for each in chunks])


def test_openais_stream_has_the_alias_its_thinking_apart_and_no_usage(governed: Gateway) -> None:
    answer = _ask(governed, CHAT, messages=_raw(THOUGHT), stream=True)
    events = answer.body.decode().removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert {each["model"] for each in chunks} == {"chat"}
    deltas = [each["choices"][0]["delta"] for each in chunks]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "北京"
    assert "".join(delta.get("content", "") for delta in deltas) == "是 🐼"
    assert [each["choices"][0]["finish_reason"] for each in chunks][-1] == "stop"
    assert "是 ".encode() in answer.body


def test_usage_comes_to_who_asks_for_it(governed: Gateway) -> None:
    options = {"include_usage": True}
    answer = _ask(governed, CHAT, messages=_raw(THOUGHT), stream=True, stream_options=options)
    assert USAGE in answer.body


def test_a_whole_answer_has_the_alias_too(governed: Gateway) -> None:
    answer = _ask(governed, CHAT, messages=_paced(ticks=2))
    assert answer.json()["model"] == "chat"


def test_completions_are_asked_at_their_own_path(governed: Gateway, engine: RunningEngine) -> None:
    request_id = "completions-1"
    body = json.dumps({"model": "chat", "prompt": paced_words(tick_s=0.0)}).encode()
    answer = governed.ask("POST", "/v1/completions", body, {"x-request-id": request_id})
    assert answer.status == 200
    seen = engine.wait(request_id, until="ended")
    assert seen["path"] == "/v1/completions"
    assert json.loads(base64.b64decode(seen["body_b64"]))["max_tokens"] == 100


def test_anthropics_stream_ends_with_its_stop(governed: Gateway) -> None:
    answer = _ask(governed, "/v1/messages", max_tokens=9, messages=_raw(THOUGHT), stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert '"thinking":"北"'.encode() in answer.body
    assert answer.body.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')


def test_ollamas_stream_is_lines(governed: Gateway) -> None:
    answer = _ask(governed, "/api/chat", messages=_raw(THOUGHT))
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert "".join(line["message"].get("thinking", "") for line in lines) == "北京"
    assert "".join(line["message"]["content"] for line in lines) == "是 🐼"
    assert (lines[-1]["done"], lines[-1]["prompt_eval_count"]) == (True, 9)


@pytest.mark.parametrize("cut", [0, 3])
@pytest.mark.parametrize(
    ("path", "fields"),
    [(CHAT, {"stream": True}), ("/v1/messages", {"stream": True, "max_tokens": 9}),
     ("/api/chat", {})],
)  # fmt: skip
def test_an_engine_that_breaks_off_is_an_error_in_every_api(
    governed: Gateway, path: str, fields: dict[str, Any], cut: int
) -> None:
    answer = _ask(governed, path, messages=_paced(ticks=5, cut_at_tick=cut), **fields)
    assert answer.status == (502 if cut == 0 else 200)
    said = b"The engine's answer ended before it was complete."
    assert said in answer.body.rstrip(b"\n").splitlines()[-1]
    if path == "/api/chat":
        assert all(json.loads(line) for line in answer.body.splitlines())


REFUSALS = {
    CHAT: ("error", "message"),
    "/v1/messages": ("error", "message"),
    "/api/chat": ("error",),
}


def _message(answer: Answer, path: str) -> str:
    said: Any = answer.json()
    for name in REFUSALS[path]:
        said = said[name]
    return str(said)


@pytest.mark.parametrize("path", REFUSALS)
@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"tools": [{"name": "t", "type": "function", "input_schema": {}}] }, 400,
         "This model's engine does not support 'tools'."),
        ({"model": "gpt-4"}, 404, "There is no model 'gpt-4' here; there is 'chat'."),
        ({"messages": "x"}, 400, "'messages' must be a list of "),
        ({"messages": [{"role": "user", "content": "word " * 5000}]}, 400,
         f"This model's context is {CONTEXT_TOKENS} tokens; the prompt has "),
        ({"messages": [{"role": "user", "content": 'paced: {"status": 400, "raw_b64": '
                        '["eyJlcnJvciI6eyJtZXNzYWdlIjoiYm9vbSJ9fQ=="], "tick_s": 0}'}],
          "stream": False}, 400, "boom"),
    ],
)  # fmt: skip
def test_every_api_refuses_the_same_in_its_own_shape(
    governed: Gateway, path: str, fields: dict[str, Any], status: int, message: str
) -> None:
    needed = {"max_tokens": 9} if path == "/v1/messages" else {}
    if path == "/v1/messages" and "tools" in fields:
        fields = {"tools": [{"name": "t", "input_schema": {}}]}
    asked = {"messages": [{"role": "user", "content": "x"}], **needed, **fields}
    answer = _ask(governed, path, **asked)
    assert answer.status == status
    assert _message(answer, path).startswith(message)


@pytest.mark.parametrize("path", REFUSALS)
def test_a_wrong_key_is_refused_in_the_shape_of_who_asks(governed: Gateway, path: str) -> None:
    answer = governed.ask("POST", path, b"{}", key="wrong")
    assert answer.status == 401
    message = _message(answer, path)
    assert message.startswith("Missing or wrong API key")
    assert "'x-api-key: KEY'" in message


def test_the_models_are_the_alias_and_nothing_else(governed: Gateway) -> None:
    (model,) = governed.ask("GET", "/v1/models").json()["data"]
    assert (model["id"], model["max_model_len"]) == ("chat", CONTEXT_TOKENS)
    for path in ("/api/tags", "/api/ps"):
        (listed,) = governed.ask("GET", path).json()["models"]
        assert listed["model"] == "chat"
    shown = _ask(governed, "/api/show").json()
    assert shown["model_info"]["appliance.context_length"] == CONTEXT_TOKENS
    assert shown["capabilities"] == ["completion"]
    assert governed.ask("GET", "/api/version").json()["version"].count(".") == 2


def test_without_an_alias_ollamas_list_is_the_engines(gateway: Gateway) -> None:
    (listed,) = gateway.ask("GET", "/api/tags").json()["models"]
    assert listed["name"] == "paced"


def test_tokens_are_told_without_asking_the_engine(
    governed: Gateway, engine: RunningEngine
) -> None:
    before = len(engine.seen())
    question = [{"role": "user", "content": "What is your name?"}]
    assert _ask(governed, "/tokenize", messages=question).json()["count"] == 8
    assert _ask(governed, "/tokenize", prompt="hi there").json()["tokens"] == [79, 80, 883]
    counted = _ask(governed, "/v1/messages/count_tokens", messages=question)
    assert counted.json() == {"input_tokens": 8}
    assert len(engine.seen()) == before


def test_ollama_may_ask_for_the_model_to_be_loaded(governed: Gateway) -> None:
    assert _ask(governed, "/api/generate").json()["done_reason"] == "load"


def test_the_document_names_exactly_the_routes_there_are(governed: Gateway) -> None:
    paths = governed.ask("GET", "/openapi.json").json()["paths"]
    assert sorted(paths) == [
        "/api/chat",
        "/api/generate",
        "/api/ps",
        "/api/show",
        "/api/tags",
        "/api/version",
        "/healthz",
        "/openapi.json",
        "/readyz",
        "/tokenize",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/models",
        "/v1/queue",
        "/v1/queue/{request_id}",
    ]
    body = paths[CHAT]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["messages"]
    assert {"type": "integer", "minimum": 1} in body["properties"]["max_tokens"]["anyOf"]
    for path, operations in paths.items():
        for method in ("get", "post"):
            answer = governed.ask(method.upper(), path.replace("{request_id}", "x"), b"")
            code = answer.status
            assert (code == 405) == (method not in operations), (method, path, code)

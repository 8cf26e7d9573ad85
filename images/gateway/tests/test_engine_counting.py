"""Prompts counted by the engine, where no tokenizer of the model lies beside the gateway."""

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from images.gateway.tests.dialect_support import DONE, chunk
from images.gateway.tests.pacing import paced_words
from images.gateway.tests.support import (
    CHAT,
    ENGINE_KEY,
    Answer,
    Gateway,
    chat_body,
    environment,
    new_id,
    policy_file,
    running_gateway,
)
from paced_engine.running import RunningEngine, running_engine

COMPLETIONS = "/v1/completions"
CONTEXT_TOKENS = 2000
COUNTING = ("/apply-template", "/tokenize")
# Far more bytes than the context has tokens, and words that fit.
LONG = "pneumonoultramicroscopicsilicovolcanoconiosis " * 100
TOO_LONG = "word " * 2400
TOO_LONG_TOKENS = 1 + 1 + 2400 + 1
THOUGHT = [chunk({"content": "hm</think>\n\nYes"}, "stop"), DONE]


@pytest.fixture
def engine() -> Iterator[RunningEngine]:
    with running_engine(api_key=ENGINE_KEY) as running:
        yield running


@pytest.fixture(params=["llama.cpp", "kt-legacy"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def gateway(
    engine: RunningEngine, dialect: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("counting")
    policy = policy_file(
        folder,
        model={"context_tokens": CONTEXT_TOKENS, "max_tokens": 500, "think": "split"},
        capabilities={"tokenize": dialect},
    )
    with running_gateway(environment(folder, engine.url, POLICY_FILE=policy)) as running:
        yield running


def _ask(gateway: Gateway, path: str, **fields: Any) -> Answer:
    return gateway.ask("POST", path, json.dumps({"model": "paced", **fields}).encode())


def _chat(gateway: Gateway, content: str, **fields: Any) -> Answer:
    messages = [{"role": "user", "content": content}]
    return _ask(gateway, CHAT, messages=messages, **fields)


def _thought(gateway: Gateway, **fields: Any) -> Any:
    """What became of an answer that closes a thinking that it does not open."""
    raw = [base64.b64encode(each).decode() for each in THOUGHT]
    content = "paced: " + json.dumps({"tick_s": 0.0, "raw_b64": raw})
    answer = _ask(
        gateway, CHAT, messages=[{"role": "user", "content": content}], stream=True, **fields
    )
    events = answer.body.decode().removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]
    deltas = [json.loads(event[6:])["choices"][0]["delta"] for event in events]
    return {
        name: "".join(delta.get(name) or "" for delta in deltas)
        for name in ("reasoning_content", "content")
    }


def _asked(engine: RunningEngine) -> list[str]:
    return [seen["path"] for seen in engine.seen() if seen["path"] in COUNTING]


def _to_count_one(dialect: str) -> list[str]:
    return ["/apply-template", "/tokenize"] if dialect == "llama.cpp" else ["/tokenize"]


def test_a_talk_that_does_not_fit_is_refused_with_the_engines_numbers(
    gateway: Gateway, engine: RunningEngine, dialect: str
) -> None:
    answer = _chat(gateway, TOO_LONG)
    error = answer.json()["error"]
    assert (answer.status, error["code"]) == (400, "context_length_exceeded")
    assert (
        f"context is {CONTEXT_TOKENS} tokens; the prompt has {TOO_LONG_TOKENS}" in error["message"]
    )
    assert [seen["path"] for seen in engine.seen()] == _to_count_one(dialect)


def test_what_fits_by_its_count_is_granted_the_rest_of_the_context(
    gateway: Gateway, engine: RunningEngine
) -> None:
    content = "x " * 1800
    assert _chat(gateway, content).status == 200
    body = json.loads(engine.body_of(engine.seen()[-1]))
    assert body["max_tokens"] == CONTEXT_TOKENS - (1 + 1 + 1800 + 1)
    assert body["messages"][0]["content"] == content
    assert _chat(gateway, content, max_tokens=198).status == 400


def test_what_surely_fits_is_not_asked_about(gateway: Gateway, engine: RunningEngine) -> None:
    _ask(gateway, COMPLETIONS, prompt="Hi", max_tokens=10)
    assert _asked(engine) == []


def test_a_text_prompt_is_counted_too(gateway: Gateway, engine: RunningEngine) -> None:
    error = _ask(gateway, COMPLETIONS, prompt=TOO_LONG).json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
    assert "the prompt has 2401" in error["message"]
    assert _asked(engine) == ["/tokenize"]
    numbers = _ask(gateway, COMPLETIONS, prompt=list(range(2500))).json()["error"]
    assert "the prompt has 2500" in numbers["message"]
    assert _asked(engine) == ["/tokenize"]
    listed = _ask(gateway, COMPLETIONS, prompt=[[1], [1.0] * 2600]).json()["error"]
    assert "the prompt has 2600" in listed["message"]
    assert _asked(engine) == ["/tokenize"]
    several = _ask(gateway, COMPLETIONS, prompt=["x", TOO_LONG]).json()["error"]
    assert "the prompt has 2401" in several["message"]


def test_the_engine_is_asked_with_its_own_key_and_not_with_the_clients_words(
    gateway: Gateway, engine: RunningEngine
) -> None:
    _chat(gateway, LONG, user="a secret", max_tokens=1)
    counting = [seen for seen in engine.seen() if seen["path"] in COUNTING]
    assert counting
    for seen in counting:
        assert seen["headers"]["authorization"] == f"Bearer {ENGINE_KEY}"
        assert b"secret" not in engine.body_of(seen)


def test_a_default_system_message_and_tools_count(
    engine: RunningEngine, dialect: str, tmp_path: Any
) -> None:
    policy = policy_file(
        tmp_path,
        model={"context_tokens": CONTEXT_TOKENS},
        capabilities={"tokenize": dialect},
        defaults={"system_message": "Be brief. " * 1200},
    )
    with running_gateway(environment(tmp_path, engine.url, POLICY_FILE=policy)) as running:
        message = _chat(running, "Hi").json()["error"]["message"]
    assert f"the prompt has {1 + 1 + 2400 + 2 + 1}" in message


@pytest.mark.parametrize("how", [{"status": 500}, {"status": 404}, {"delay_s": 20.0}])
def test_where_it_is_not_counted_the_request_passes(
    gateway: Gateway, engine: RunningEngine, how: dict[str, Any]
) -> None:
    engine.set_tokenizing(**how)
    began_s = time.monotonic()
    # A completion: nobody has to know how its prompt ends.
    answer = _ask(gateway, COMPLETIONS, prompt=TOO_LONG)
    assert answer.status == 200
    assert time.monotonic() - began_s < 6
    assert any("was not counted" in line for line in gateway.log)


def test_an_engines_own_refusal_is_still_translated(
    gateway: Gateway, engine: RunningEngine
) -> None:
    engine.set_tokenizing(status=500)
    said = {"error": {"code": 400, "message": "request (2004 tokens) exceeds the available context "
            "size (1000 tokens), try increasing it"}}  # fmt: skip
    raw = [base64.b64encode(json.dumps(said).encode()).decode()]
    words = paced_words(status=400, raw_b64=raw, tick_s=0.0)
    answer = _ask(gateway, COMPLETIONS, prompt=f"{words} {TOO_LONG}")
    error = answer.json()["error"]
    assert (answer.status, error["code"]) == (400, "context_length_exceeded")
    assert "the prompt has 2004" in error["message"]


def test_counting_needs_no_permit(engine: RunningEngine, dialect: str, tmp_path: Any) -> None:
    policy = policy_file(
        tmp_path,
        model={"context_tokens": CONTEXT_TOKENS},
        capabilities={"tokenize": dialect},
        queue={"capacity": 1},
    )
    with running_gateway(environment(tmp_path, engine.url, POLICY_FILE=policy)) as running:
        held = new_id()
        with running.chat(chat_body(tick_s=30.0), held):
            engine.wait(held, ticks=1)
            assert _chat(running, TOO_LONG).json()["error"]["code"] == "context_length_exceeded"


def test_tokenize_and_count_tokens_ask_the_engine(gateway: Gateway, dialect: str) -> None:
    messages = [{"role": "user", "content": "What is your name?"}]
    told = _ask(gateway, "/tokenize", messages=messages).json()
    assert (told["count"], told["max_model_len"]) == (1 + 1 + 4 + 1, CONTEXT_TOKENS)
    assert ("tokens" in told) == (dialect == "llama.cpp")
    assert _ask(gateway, "/tokenize", prompt="hi there").json()["count"] == 3
    assert _ask(gateway, "/tokenize", content="hi there").json()["count"] == 3
    counted = _ask(gateway, "/v1/messages/count_tokens", messages=messages)
    assert counted.json() == {"input_tokens": 7}
    bare = _ask(gateway, "/tokenize", prompt="hi there", add_special_tokens=False)
    if dialect == "llama.cpp":
        assert bare.json()["tokens"] == [2, 3]
    else:
        assert (bare.status, bare.json()["error"]["code"]) == (400, "unsupported_parameter")


def test_who_asks_for_numbers_alone_hears_that_there_are_none(
    gateway: Gateway, engine: RunningEngine
) -> None:
    engine.set_tokenizing(status=400)
    answer = _ask(gateway, "/tokenize", prompt="hi")
    assert (answer.status, answer.json()["error"]["message"]) == (400, "not counted")
    engine.set_tokenizing(delay_s=20.0)
    assert _ask(gateway, "/tokenize", prompt="hi").status == 503
    # This one may be a guess.
    messages = [{"role": "user", "content": "x" * 400}]
    counted = _ask(gateway, "/v1/messages/count_tokens", messages=messages).json()
    assert 100 <= counted["input_tokens"] <= 120


def test_a_template_that_opens_the_thinking_is_asked_about_once(
    gateway: Gateway, engine: RunningEngine, dialect: str
) -> None:
    engine.set_tokenizing(opens_thinking=True)
    for _ in range(3):
        assert _thought(gateway) == {"reasoning_content": "hm", "content": "Yes"}
    assert _asked(engine) == _to_count_one(dialect)


def test_a_template_that_does_not_is_left_alone(gateway: Gateway, engine: RunningEngine) -> None:
    assert _thought(gateway) == {"reasoning_content": "", "content": "hm</think>\n\nYes"}


@pytest.mark.parametrize("dialect", ["llama.cpp"], indirect=True)
def test_what_a_request_tells_the_template_is_asked_about_on_its_own(
    gateway: Gateway, engine: RunningEngine
) -> None:
    engine.set_tokenizing(opens_thinking=True)
    for _ in range(2):
        assert _thought(gateway)["reasoning_content"] == "hm"
        told = _thought(gateway, chat_template_kwargs={"thinking": False})
        assert told["reasoning_content"] == ""
    assert len(_asked(engine)) == 4


def test_it_is_asked_again_after_an_engine_that_could_not_say(
    gateway: Gateway, engine: RunningEngine
) -> None:
    engine.set_tokenizing(status=503)
    assert _thought(gateway)["reasoning_content"] == ""
    engine.set_tokenizing(opens_thinking=True)
    assert _thought(gateway)["reasoning_content"] == "hm"

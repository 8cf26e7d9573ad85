"""Ollama's API, made of the engine's: requests, answers, lines and errors."""

import json
import time
from typing import Any

import orjson
import pytest

from gateway.dialects.ollama import GENERATE, OLLAMA_CHAT, Ollama
from gateway.engine_request import EngineRequest
from gateway.errors import INTERNAL, Refused
from gateway.policy import Policy
from gateway.shaping import shaped
from images.gateway.tests.dialect_support import DONE, USAGE, call, chunk, through
from images.gateway.tests.shaping_support import policy

HELLO = [{"role": "user", "content": "北京?"}]


def _read(dialect: Ollama, here: Policy | None = None, **fields: Any) -> EngineRequest:
    here = here or policy()
    return shaped(dialect.read(orjson.dumps({"model": "m", **fields}), here), here)


def test_a_talk_with_tools_and_options_becomes_a_chat() -> None:
    asked = _read(
        OLLAMA_CHAT,
        stream=False,
        messages=[
            *HELLO,
            {"role": "assistant", "content": "", "thinking": "ask", "tool_calls": [
                {"function": {"name": "weather", "arguments": {"place": "北京"}}},
                {"function": {"name": "clock", "arguments": {}}}]},
            {"role": "tool", "tool_name": "weather", "content": "☀️"},
            {"role": "tool", "tool_name": "clock", "content": "12"},
            {"role": "user", "content": "And?", "images": ["iVBORw0KGgoAAA"]},
        ],
        options={"temperature": 0.1, "num_predict": 7, "num_ctx": 99, "stop": ["END"], "top_k": 2},
        format={"type": "object"}, think=False, keep_alive="5m",
    )  # fmt: skip
    assert asked.body is not None
    assert json.loads(asked.body) == {
        "model": "m",
        "stream": False,
        "temperature": 0.1,
        "top_k": 2,
        "stop": ["END"],
        "max_tokens": 7,
        "response_format": {"type": "json_schema",
                            "json_schema": {"name": "format", "schema": {"type": "object"}}},
        "chat_template_kwargs": {"thinking": False, "enable_thinking": False},
        "messages": [
            *HELLO,
            {"role": "assistant", "content": "", "reasoning_content": "ask", "tool_calls": [
                {"id": "call_0", "type": "function",
                 "function": {"name": "weather", "arguments": '{"place":"北京"}'}},
                {"id": "call_1", "type": "function",
                 "function": {"name": "clock", "arguments": "{}"}}]},
            {"role": "tool", "content": "☀️", "tool_call_id": "call_0"},
            {"role": "tool", "content": "12", "tool_call_id": "call_1"},
            {"role": "user", "content": [
                {"type": "text", "text": "And?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAA"}}]},
        ],
    }  # fmt: skip


def test_it_streams_unless_told_otherwise() -> None:
    assert _read(OLLAMA_CHAT, messages=HELLO).stream
    assert not _read(OLLAMA_CHAT, messages=HELLO, stream=False).stream


def test_a_question_is_a_chat_and_a_raw_prompt_is_none() -> None:
    asked = _read(GENERATE, prompt="Hi", system="Be kind.")
    assert asked.path == "/v1/chat/completions"
    assert asked.parsed["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
    ]
    raw = _read(GENERATE, prompt="Hi", raw=True)
    assert (raw.path, raw.parsed["prompt"]) == ("/v1/completions", "Hi")


@pytest.mark.parametrize("unlimited", [-1, -2, 0])
def test_no_end_is_the_profiles_end(unlimited: int) -> None:
    here = policy(model={"max_tokens": 50})
    options = {"num_predict": unlimited}
    assert _read(OLLAMA_CHAT, here, messages=HELLO, options=options).parsed["max_tokens"] == 50


def test_a_model_may_be_named_with_its_tag() -> None:
    here = policy(model={"public": "chat", "engine": "x"})
    asked = shaped(
        OLLAMA_CHAT.read(orjson.dumps({"model": "chat:latest", "messages": HELLO}), here), here
    )
    assert asked.parsed["model"] == "x"


@pytest.mark.parametrize(
    ("dialect", "fields", "param"),
    [
        (OLLAMA_CHAT, {"messages": HELLO, "format": "json"}, "format"),
        (GENERATE, {"prompt": "x", "suffix": "y"}, "suffix"),
        (OLLAMA_CHAT, {"messages": HELLO, "options": {"temperature": "hot"}}, "temperature"),
        (OLLAMA_CHAT, {"messages": [{"role": "user", "images": 3}]}, "messages"),
    ],
)
def test_what_can_not_be_is_refused_in_its_own_words(
    dialect: Ollama, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(Refused) as refused:
        _read(dialect, policy(capabilities={"json_mode": False}), **fields)
    assert (refused.value.error.status, refused.value.error.param) == (400, param)


def _lines(*events: bytes, dialect: Ollama = OLLAMA_CHAT, size: int = 7) -> list[dict[str, Any]]:
    here = policy(model={"think": "split"})
    fields = {"messages": HELLO} if dialect is OLLAMA_CHAT else {"prompt": "x"}
    asked = _read(dialect, here, **fields)
    out = through(dialect.filters(asked, here), b"".join(events), size)
    assert out.decode().splitlines() == out.decode().removesuffix("\n").split("\n")
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_a_stream_is_lines_with_whole_calls_and_a_last_one_that_counts(size: int) -> None:
    lines = _lines(
        b": ping\n\n",
        chunk({"role": "assistant", "content": "<think>hm</th"}),
        chunk({"content": "ink>北京"}),
        chunk(call(0, "", name="weather")),
        chunk(call(0, '{"place":"北')),
        chunk(call(0, '京"}')),
        chunk({}, "tool_calls"),
        USAGE,
        DONE,
        size=size,
    )
    assert [line["message"] for line in lines] == [
        {"role": "assistant", "content": "", "thinking": "hm"},
        {"role": "assistant", "content": "北京"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "weather", "arguments": {"place": "北京"}}}]},
        {"role": "assistant", "content": ""},
    ]  # fmt: skip
    assert [line["done"] for line in lines] == [False, False, False, True]
    last = lines[-1]
    assert (last["done_reason"], last["prompt_eval_count"], last["eval_count"]) == ("stop", 9, 5)


@pytest.mark.parametrize(
    ("written", "arguments"),
    [("", {}), ("null", {}), ("[1]", {"arguments": [1]}), ('{"a', {"arguments": '{"a'})],
)
def test_arguments_are_an_object_whatever_the_model_wrote(written: str, arguments: Any) -> None:
    """Its clients fail on anything else, and lose the whole answer with it."""
    lines = _lines(chunk(call(0, written, name="clock")), chunk({}, "tool_calls"), DONE)
    (called,) = lines[0]["message"]["tool_calls"]
    assert called == {"function": {"name": "clock", "arguments": arguments}}


def test_the_time_in_all_begins_with_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it waited in line and for its first token too, as Ollama counts."""
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    asked = _read(OLLAMA_CHAT, messages=HELLO)
    now_s = 160.0
    filters = OLLAMA_CHAT.filters(asked, policy())
    now_s = 162.0
    said = through(filters, chunk({"content": "a"}) + DONE, 999).splitlines()[-1]
    last = json.loads(said)
    assert (last["total_duration"], last["eval_duration"]) == (62 * 10**9, 2 * 10**9)


@pytest.mark.parametrize("dialect", [OLLAMA_CHAT, GENERATE])
def test_only_the_model_that_there_is_can_be_loaded(dialect: Ollama) -> None:
    here = policy(model={"public": "chat"})
    with pytest.raises(Refused) as refused:
        _read(dialect, here, model="llama3")
    assert (refused.value.error.status, refused.value.error.code) == (404, "model_not_found")
    assert b'"done_reason":"load"' in (_read(dialect, here, model="chat:latest").answer or b"")


def test_a_line_ends_only_where_it_ends() -> None:
    """Readers that split at every line end of Unicode would cut a text in two."""
    separators = "a\u2028b\u2029c\u0085d"
    lines = _lines(chunk({"content": separators}), DONE)
    assert lines[0]["message"]["content"] == separators


def test_a_generation_has_a_response() -> None:
    lines = _lines(chunk({"content": "a"}, "length"), DONE, dialect=GENERATE)
    assert [line["response"] for line in lines] == ["a", ""]
    assert lines[-1]["done_reason"] == "length"


def test_an_error_in_the_middle_is_the_last_line() -> None:
    lines = _lines(chunk({"content": "a"}), b'data: {"error":{"message":"boom"}}\n\n', DONE)
    assert "boom" in lines[-1]["error"]
    assert len(lines) == 2


def test_an_error_of_ours_needs_no_empty_line() -> None:
    assert OLLAMA_CHAT.between(b'{"done":false}\n') == b""
    assert OLLAMA_CHAT.event(INTERNAL) == b'{"error":"The gateway failed on this request."}\n'


def test_a_whole_answer_is_one_object() -> None:
    choice = {"message": {"content": "<think>hm</think>是"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    here = policy(model={"public": "chat", "think": "split"})
    asked = _read(OLLAMA_CHAT, messages=HELLO, stream=False)
    body = orjson.dumps({"choices": [choice], "usage": usage})
    said = json.loads(OLLAMA_CHAT.whole(asked, 200, body, here))
    del said["created_at"]
    assert said.pop("total_duration") == said.pop("eval_duration") > 0
    assert said == {
        "model": "chat",
        "message": {"role": "assistant", "content": "是", "thinking": "hm"},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 3,
        "eval_count": 2,
    }


def test_the_engines_refusal_is_a_message() -> None:
    asked = _read(OLLAMA_CHAT, messages=HELLO)
    said = OLLAMA_CHAT.whole(asked, 400, b'{"error":{"message":"zu lang"}}', policy())
    assert json.loads(said) == {"error": "zu lang"}

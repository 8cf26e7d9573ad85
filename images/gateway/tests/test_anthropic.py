"""Anthropic's Messages API, made of the engine's chat: requests, answers, streams and errors."""

import json
from typing import Any

import orjson
import pytest

from gateway.dialects.anthropic import Messages
from gateway.engine_request import EngineRequest
from gateway.errors import ApiError, Refused
from gateway.policy import Policy
from gateway.shaping import shaped
from images.gateway.tests.dialect_support import DONE, USAGE, call, chunk, through
from images.gateway.tests.shaping_support import policy

WEATHER = {
    "name": "weather",
    "description": "of a place",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}},
}


def _read(here: Policy | None = None, **fields: Any) -> EngineRequest:
    asked = {"model": "chat", "max_tokens": 9, "messages": [], **fields}
    here = here or policy()
    return shaped(Messages().read(orjson.dumps(asked), here), here)


def _refusal(here: Policy | None = None, **fields: Any) -> ApiError:
    with pytest.raises(Refused) as refused:
        _read(here, **fields)
    return refused.value.error


def test_a_talk_with_tools_and_pictures_becomes_a_chat() -> None:
    asked = _read(
        system=[{"type": "text", "text": "Sei "}, {"type": "text", "text": "höflich."}],
        messages=[
            {"role": "user", "content": "Wetter in 北京?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "ask", "signature": "s"},
                {"type": "text", "text": "Moment."},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"place": "北京"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1",
                 "content": [{"type": "text", "text": "☀️"}]},
                {"type": "text", "text": "And this?"},
                {"type": "image",
                 "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            ]},
        ],
        tools=[WEATHER], tool_choice={"type": "tool", "name": "weather"},
        stop_sequences=["END"], temperature=0.5, top_k=3, thinking={"type": "disabled"},
    )  # fmt: skip
    assert asked.path == "/v1/chat/completions"
    assert asked.body is not None
    assert json.loads(asked.body) == {
        "model": "chat",
        "max_tokens": 9,
        "temperature": 0.5,
        "top_k": 3,
        "stop": ["END"],
        "chat_template_kwargs": {"thinking": False, "enable_thinking": False},
        "tools": [{"type": "function", "function": {
            "name": "weather", "description": "of a place",
            "parameters": WEATHER["input_schema"]}}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "messages": [
            {"role": "system", "content": "Sei höflich."},
            {"role": "user", "content": "Wetter in 北京?"},
            {"role": "assistant", "content": "Moment.", "reasoning_content": "ask",
             "tool_calls": [{"id": "t1", "type": "function", "function": {
                 "name": "weather", "arguments": '{"place":"北京"}'}}]},
            {"role": "tool", "tool_call_id": "t1", "content": "☀️"},
            {"role": "user", "content": [
                {"type": "text", "text": "And this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
        ],
    }  # fmt: skip
    assert "北京".encode() in asked.body


@pytest.mark.parametrize(
    ("choice", "asked"), [("auto", "auto"), ("any", "required"), ("none", "none")]
)
def test_the_choices_of_tools_have_other_names(choice: str, asked: str) -> None:
    parsed = _read(tools=[WEATHER], tool_choice={"type": choice}).parsed
    assert parsed["tool_choice"] == asked


def test_an_answers_form_is_asked_for_as_a_chat_does() -> None:
    schema = {"type": "object", "properties": {"place": {"type": "string"}}}
    form = {"format": {"type": "json_schema", "schema": schema}, "effort": "low"}
    assert _read(output_config=form).parsed["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "format", "schema": schema},
    }
    assert "response_format" not in _read(output_config={"format": None}).parsed
    refused = _refusal(policy(capabilities={"json_mode": False}), output_config=form)
    assert (refused.code, refused.param) == ("unsupported_parameter", "output_config.format")


def test_a_system_message_may_be_in_the_middle() -> None:
    later = {"role": "system", "content": [{"type": "text", "text": "Sei kurz."}]}
    asked = _read(messages=[{"role": "user", "content": "a"}, later])
    assert asked.parsed["messages"] == [
        {"role": "user", "content": "a"},
        {"role": "system", "content": "Sei kurz."},
    ]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"max_tokens": None}, "invalid_value", "max_tokens"),
        ({"max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"messages": [{"role": "user", "content": 1}]}, "invalid_value", "messages"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "invalid_value", "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]},
         "unsupported_parameter", "document"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                                                     "content": [{"type": "image"}]}]}]},
         "unsupported_parameter", "image in a tool_result"),
        ({"output_config": {"format": {"type": "xml"}}}, "invalid_value", "output_config"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
         "unsupported_parameter", "web_search_20250305"),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_by_name(
    fields: dict[str, Any], code: str, param: str
) -> None:
    refused = _refusal(**fields)
    assert (refused.status, refused.code, refused.param) == (400, code, param)


def _stream(*events: bytes, size: int = 7, here: Policy | None = None) -> list[dict[str, Any]]:
    asked = _read(here, stream=True)
    filters = Messages().filters(asked, here or policy())
    out = through(filters, b"".join(events), size)
    found = []
    for event in out.split(b"\n\n")[:-1]:
        if event.startswith(b":"):
            continue
        name, data = event.split(b"\n")
        found.append(json.loads(data.removeprefix(b"data: ")))
        assert name == b"event: " + found[-1]["type"].encode()
    return found


@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_a_stream_thinks_speaks_and_calls_in_blocks_of_their_own(size: int) -> None:
    events = _stream(
        b": ping\n\n",
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "北"}),
        chunk({"content": "京 🐼"}),
        chunk(call(0, "", name="weather")),
        chunk(call(0, '{"place":')),
        chunk(call(0, '"北京"}')),
        chunk(call(1, "{}", name="clock")),
        chunk({}, "tool_calls"),
        USAGE,
        DONE,
        size=size,
    )
    assert [event["type"] for event in events] == [
        "message_start",
        "content_block_start", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    begins = [event for event in events if event["type"] == "content_block_start"]
    assert [event["index"] for event in begins] == [0, 1, 2, 3]
    assert [event["content_block"]["type"] for event in begins] == [
        "thinking", "text", "tool_use", "tool_use",
    ]  # fmt: skip
    assert begins[2]["content_block"] == {
        "type": "tool_use", "id": "call_0", "name": "weather", "input": {},
    }  # fmt: skip
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == "北京 🐼"
    assert "".join(delta.get("partial_json", "") for delta in deltas) == '{"place":"北京"}{}'
    assert events[-2] == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 5},
    }


def test_thinking_is_split_before_it_becomes_a_block() -> None:
    events = _stream(
        chunk({"content": "<think>a</th"}),
        chunk({"content": "ink>b"}),
        chunk({}, "length"),
        USAGE,
        DONE,
        here=policy(model={"think": "split"}),
    )
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert deltas == [
        {"type": "thinking_delta", "thinking": "a"},
        {"type": "text_delta", "text": "b"},
    ]
    assert events[-2]["delta"]["stop_reason"] == "max_tokens"


def test_an_empty_answer_is_a_whole_message_all_the_same() -> None:
    events = _stream(chunk({}, "stop"), DONE)
    assert [event["type"] for event in events] == ["message_start", "message_delta", "message_stop"]


def test_an_error_in_the_middle_is_the_last_event() -> None:
    events = _stream(chunk({"content": "a"}), b'data: {"error":{"message":"boom"}}\n\n', DONE)
    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["type"] == "api_error"
    assert "boom" in events[-1]["error"]["message"]


@pytest.mark.parametrize(
    ("finish", "more", "reason", "sequence"),
    [
        ("stop", {}, "end_turn", None),
        ("length", {}, "max_tokens", None),
        ("stop", {"matched_stop": "END"}, "stop_sequence", "END"),
        ("stop", {"matched_stop": 151643}, "end_turn", None),
        ("stop", {"stop_reason": "END"}, "stop_sequence", "END"),
    ],
)
def test_an_end_says_why(
    finish: str, more: dict[str, Any], reason: str, sequence: str | None
) -> None:
    events = _stream(chunk({"content": "a"}, finish, **more), DONE)
    assert events[-2]["delta"] == {"stop_reason": reason, "stop_sequence": sequence}


def test_a_whole_answer_has_the_same_blocks() -> None:
    message = {
        "content": "是 🐼",
        "reasoning_content": "hm",
        "tool_calls": [{"id": "c", "function": {"name": "weather", "arguments": '{"a":1}'}}],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    body = orjson.dumps({"id": "x", "choices": [choice], "usage": usage})
    said = Messages().whole(_read(), 200, body, policy(model={"public": "chat"}))
    assert json.loads(said) == {
        "id": "msg_x",
        "type": "message",
        "role": "assistant",
        "model": "chat",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "text", "text": "是 🐼"},
            {"type": "tool_use", "id": "c", "name": "weather", "input": {"a": 1}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 0, "output_tokens": 2},
    }
    assert "是 🐼".encode() in said


@pytest.mark.parametrize(
    ("written", "given"),
    [("", {}), ("null", {}), ("[1]", {"arguments": [1]}), ('{"a', {"arguments": '{"a'})],
)
def test_a_calls_input_is_an_object_whatever_the_model_wrote(written: str, given: Any) -> None:
    made = {"id": "c", "function": {"name": "clock", "arguments": written}}
    choice = {"message": {"tool_calls": [made]}, "finish_reason": "tool_calls"}
    said = json.loads(Messages().whole(_read(), 200, orjson.dumps({"choices": [choice]}), policy()))
    assert said["content"][0]["input"] == given


def test_a_call_whose_input_was_null_may_be_in_a_talk() -> None:
    """A stream passes what the model wrote, piece by piece; its client gives it back so."""
    block = {"type": "tool_use", "id": "c", "name": "clock", "input": None}
    asked = _read(messages=[{"role": "assistant", "content": [block]}])
    (said,) = asked.parsed["messages"]
    assert said["tool_calls"][0]["function"] == {"name": "clock", "arguments": "{}"}


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"choices":[]}', b'{"choices":["x"]}'])
def test_an_answer_that_is_none_is_the_engines_fault(body: bytes) -> None:
    with pytest.raises(Refused, match="engine_answer_unusable"):
        Messages().whole(_read(), 200, body, policy())


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_the_engines_refusal_is_said_in_anthropics_words(status: int, kind: str) -> None:
    body = b'{"object":"error","message":"too long","code":400}'
    said = json.loads(Messages().whole(_read(), status, body, policy()))
    assert said == {"type": "error", "error": {"type": kind, "message": "too long"}}

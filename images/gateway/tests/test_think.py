"""Thinking is told apart the same way however a stream is cut, and nothing of it is lost."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.openai import CHAT, CHAT_PATH
from gateway.engine_request import EngineRequest
from gateway.policy import Policy
from gateway.think import Splitter, ThinkSplit, split_whole

SPLITS = [
    (False, "<think>a\nb</think>\n\nYes. 🐼", "a\nb", "Yes. 🐼"),
    (False, "\n<think>\nhm</think>1 < 2", "hm", "1 < 2"),
    (False, "No thinking, <think>later</think>.", "", "No thinking, <think>later</think>."),
    (False, "<thin", "", "<thin"),
    (False, "", "", ""),
    (False, "<think>cut in the mid</thin", "cut in the mid</thin", ""),
    (False, "<think></think>\n\nYes", "", "Yes"),
    (True, "so</think>\nYes", "so", "Yes"),
    (True, "<think>\nso</think>Yes", "so", "Yes"),
    (True, "never closed", "never closed", ""),
]


def _pieces(text: str, cuts: list[int]) -> list[str]:
    ends = sorted({cut % (len(text) + 1) for cut in cuts} | {len(text)})
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize(("opened", "text", "reasoning", "content"), SPLITS)
@given(cuts=st.lists(st.integers(0, 200)))
def test_a_text_is_split_alike_in_any_pieces(
    opened: bool, text: str, reasoning: str, content: str, cuts: list[int]
) -> None:
    splitter = Splitter(opened=opened)
    said = [splitter.feed(piece) for piece in _pieces(text, cuts)] + [splitter.end()]
    assert "".join(part for part, _ in said) == reasoning
    assert "".join(part for _, part in said) == content


def _event(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    chunk = {"id": "c", "model": "m", "choices": [choice], "usage": None, **more}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


def _deltas(stream: bytes) -> list[tuple[dict[str, Any], str | None]]:
    found = []
    for event in stream.removesuffix(b"data: [DONE]\n\n").split(b"\n\n")[:-1]:
        (choice,) = json.loads(event.removeprefix(b"data: "))["choices"]
        found.append((choice["delta"], choice["finish_reason"]))
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_a_stream_keeps_its_role_its_end_and_the_order(size: int) -> None:
    text = "<think>北京?</think>\n\n是 🐼"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    events = [_event({"role": "assistant", "content": ""})]
    events += [_event({"content": piece}) for piece in pieces]
    events += [_event({}, "stop"), b"data: [DONE]\n\n"]

    split = ThinkSplit(opened=False, answers=1)
    out = b"".join(split.feed(event) for event in events)

    deltas = _deltas(out)
    assert deltas[0] == ({"role": "assistant", "content": ""}, None)
    assert deltas[-1] == ({}, "stop")
    thought = [delta["reasoning_content"] for delta, _ in deltas if "reasoning_content" in delta]
    said = [delta["content"] for delta, _ in deltas if delta.get("content")]
    assert ("".join(thought), "".join(said)) == ("北京?", "是 🐼")
    assert [finish for _, finish in deltas if finish] == ["stop"]
    assert "北".encode() in out
    assert out.endswith(b"data: [DONE]\n\n")


def test_what_follows_the_thinking_is_not_rewritten() -> None:
    split = ThinkSplit(opened=False, answers=1)
    split.feed(_event({"content": "<think>a</think>b"}))
    odd = b'data:  {"choices":[{"delta":{"content":"<think>" } }], "x" : 0.10}\r\n\r\n'
    assert split.feed(odd) == odd


def test_an_answer_cut_while_thinking_ends_with_its_reason_and_all_of_its_text() -> None:
    split = ThinkSplit(opened=False, answers=1)
    out = split.feed(_event({"content": "<think>long</th"})) + split.feed(_event({}, "length"))
    deltas = _deltas(out)
    assert "".join(delta.get("reasoning_content", "") for delta, _ in deltas) == "long</th"
    assert deltas[-1] == ({}, "length")


def test_usage_that_comes_with_the_last_choice_is_kept() -> None:
    split = ThinkSplit(opened=True, answers=1)
    out = split.feed(_event({"content": "x"}, "length", usage={"prompt_tokens": 3}))
    assert b'"prompt_tokens":3' in out


def test_tools_called_right_after_thinking_pass() -> None:
    split = ThinkSplit(opened=True, answers=1)
    call = {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"}}]}
    out = split.feed(_event({"content": "hm"})) + split.feed(_event(call))
    assert _deltas(out) == [({"reasoning_content": "hm"}, None), (call, None)]


def test_each_of_several_answers_thinks_for_itself() -> None:
    split = ThinkSplit(opened=False, answers=2)

    def event(index: int, text: str) -> bytes:
        choice = {"index": index, "delta": {"content": text}, "finish_reason": None}
        return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"

    first = split.feed(event(0, "<think>a</think>b"))
    second = split.feed(event(1, "<think>c</think>d"))
    assert [delta for delta, _ in _deltas(first)] == [{"reasoning_content": "a"}, {"content": "b"}]
    assert [delta for delta, _ in _deltas(second)] == [{"reasoning_content": "c"}, {"content": "d"}]


def test_a_whole_message_says_the_same() -> None:
    message = {"role": "assistant", "content": "<think>a</think>\n\nb"}
    assert split_whole(message, opened=False) == {
        "role": "assistant",
        "reasoning_content": "a",
        "content": "b",
    }


@pytest.mark.parametrize(
    ("opened", "text"), [(False, "<think>\n\n</think>\n\nYes"), (True, "</think>Yes")]
)
def test_a_whole_message_without_a_thought_has_no_marks_either(opened: bool, text: str) -> None:
    assert split_whole({"content": text}, opened=opened) == {"content": "Yes"}


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("<think>", "</think>"), ("\\u003cthink\\u003e", "\\u003c/think\\u003E")],
)
def test_thinking_in_a_whole_answer_is_found_however_its_brackets_are_written(
    opening: str, closing: str
) -> None:
    policy = Policy.model_validate({"version": 1, "model": {"think": "split"}})
    asked = EngineRequest(method="POST", path=CHAT_PATH)
    text = f"{opening}a{closing}b".encode()
    body = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "%s"}}]}' % text
    (choice,) = json.loads(CHAT.whole(asked, 200, body, policy))["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "reasoning_content": "a",
        "content": "b",
    }


def test_a_whole_answer_that_begins_inside_its_thinking_needs_no_mark() -> None:
    policy = Policy.model_validate({"version": 1, "model": {"think": "split"}})
    asked = EngineRequest(method="POST", path=CHAT_PATH, opens_thinking=True)
    body = b'{"choices": [{"index": 0, "message": {"content": "never closed"}}]}'
    (choice,) = json.loads(CHAT.whole(asked, 200, body, policy))["choices"]
    assert choice["message"] == {"reasoning_content": "never closed", "content": ""}


def test_an_engine_that_split_already_is_left_alone() -> None:
    message = {"content": "<think>quoted</think>", "reasoning_content": "own"}
    assert split_whole(message, opened=False) is message


def test_an_end_that_comes_with_the_last_thought_comes_once() -> None:
    split = ThinkSplit(opened=True, answers=1)
    deltas = _deltas(split.feed(_event({"content": "a</think>b"}, "stop")))
    assert deltas == [({"reasoning_content": "a"}, None), ({"content": "b"}, "stop")]


def test_usage_that_comes_with_every_piece_is_kept_where_the_piece_is_held_back() -> None:
    split = ThinkSplit(opened=True, answers=1)
    out = split.feed(_event({"content": "</thi"}, usage={"prompt_tokens": 3}))
    assert json.loads(out.removeprefix(b"data: "))["usage"] == {"prompt_tokens": 3}


def test_an_error_event_passes() -> None:
    error = b'data: {"error":{"message":"boom"}}\n\n'
    assert ThinkSplit(opened=True, answers=10**15).feed(error) == error

"""Streams in pieces of any size: filters see whole events, the meter reads along."""

import json
from typing import Any

import pytest

from gateway.engine_refusals import engine_refused
from gateway.filters import Chain
from gateway.usage import StreamMeter, Usage, usage_of_answer

STREAM = (
    b'data: {"choices":[{"delta":{"content":"\xe5\x8c\x97"}}],"usage":null}\n\n'
    b": ping\r\n\r\n"
    b'data: {"choices":[{"delta":{"content":"b"}}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":4}}}\n\n'
    b"data: [DONE]\n\n"
)


class _Numbered:
    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def feed(self, event: bytes) -> bytes:
        self.seen.append(event)
        return b"" if event.startswith(b":") else event + event

    def end(self) -> bytes:
        return b"end"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_filters_see_whole_events_however_they_come(size: int) -> None:
    first, second = _Numbered(), _Numbered()
    chain = Chain([first, second])
    parts = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    out = b"".join(chain.feed(part) for part in parts) + chain.end()
    assert b"".join(first.seen) == STREAM
    assert len(first.seen) == 5
    assert len(second.seen) == 4 * 2 + 1
    assert out.endswith(b"data: [DONE]\n\n" * 4 + b"endendend")


def test_without_filters_nothing_is_held_back() -> None:
    chain = Chain([])
    assert chain.feed(b"data: {") == b"data: {"
    assert chain.end() == b""


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_the_meter_finds_usage_and_end_however_they_come(size: int) -> None:
    meter = StreamMeter(99)
    for at in range(0, len(STREAM), size):
        meter.feed(STREAM[at : at + size])
    assert meter.done
    assert meter.usage == Usage(
        prompt_tokens=7, completion_tokens=2, cached_tokens=4, estimated=False
    )


def test_the_meter_counts_parsed_events_as_it_counts_bytes() -> None:
    # Usage with the choice, by itself and null; a piece that says nothing; no chunk at all.
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": None},
        {"choices": [{"index": 0, "text": "b"}]},
        {"choices": [{"index": 0, "finish_reason": "stop"}]},
        {"choices": [], "usage": "none"},
    ]
    for more in (
        [],
        [{"choices": [{"index": 0, "delta": {}}], "usage": usage}],
        [{"usage": usage}],
    ):
        by_bytes, by_chunk = StreamMeter(99), StreamMeter(99)
        for chunk in [*chunks, *more]:
            by_bytes.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            by_chunk.take(chunk)
        said = Usage(prompt_tokens=7, completion_tokens=3, estimated=False)
        estimated = Usage(prompt_tokens=99, completion_tokens=2)
        assert by_bytes.usage == by_chunk.usage == (said if more else estimated)


def _usage_event(prompt: int, completion: int, *choices: dict[str, int]) -> bytes:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    return b"data: " + json.dumps({"choices": choices, "usage": usage}).encode() + b"\n\n"


@pytest.mark.parametrize(
    ("events", "answers_to_a_prompt", "prompt_tokens", "completion_tokens"),
    [
        # llama.cpp: chat with n=2, and completions of two prompts.
        ([_usage_event(10, 5), _usage_event(10, 4)], 2, 10, 9),
        ([_usage_event(3, 2, {"index": 1}), _usage_event(4, 5, {"index": 0})], 1, 7, 7),
        # sglang with n=2; with the usage so far in every piece.
        ([_usage_event(10, 9)], 2, 10, 9),
        ([_usage_event(10, 1, {"index": 0}), _usage_event(10, 2, {"index": 0})], 1, 10, 2),
        (
            [_usage_event(10, 5, {"index": 0}), _usage_event(10, 4, {"index": 1}),
             _usage_event(10, 9)],
            2, 10, 9,
        ),
    ],
)  # fmt: skip
def test_several_answers_are_counted_together_however_an_engine_says_it(
    events: list[bytes], answers_to_a_prompt: int, prompt_tokens: int, completion_tokens: int
) -> None:
    meter = StreamMeter(99, answers_to_a_prompt)
    meter.feed(b"".join(events))
    assert meter.usage == Usage(
        prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, estimated=False
    )


@pytest.mark.parametrize("number", [-1, 2**64, 1e300])
def test_a_number_that_counts_no_tokens_is_no_usage(number: float) -> None:
    """SQLite can't hold it, and the books would end with it."""
    meter = StreamMeter(99)
    meter.take({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": number}})
    assert meter.usage == Usage(prompt_tokens=99)
    answer = {"usage": {"prompt_tokens": number, "completion_tokens": 3}}
    assert usage_of_answer(json.dumps(answer).encode(), 99) == Usage(prompt_tokens=99)


def test_a_cut_stream_is_estimated_by_what_passed() -> None:
    meter = StreamMeter(99)
    meter.feed(STREAM[:150])
    assert not meter.done
    assert meter.usage == Usage(prompt_tokens=99, completion_tokens=2, estimated=True)


@pytest.mark.parametrize(
    ("body", "said"),
    [(b'{"error":{"message":"too long"}}', "too long"), (b"<html>", "it gave no reason")],
)
def test_a_refusal_that_comes_too_late_for_a_status_keeps_its_words(body: bytes, said: str) -> None:
    assert engine_refused(400, body).message == f"The engine refused this request with 400: {said}"

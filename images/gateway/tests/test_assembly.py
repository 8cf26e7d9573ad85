"""A whole answer is put together of a stream as the engine itself would have put it."""

import json
from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from gateway.assembly import Assembly
from gateway.errors import ApiError, Refused
from gateway.usage import StreamMeter
from images.gateway.tests.dialect_support import DONE, USAGE, call, chunk


def _assembled(*events: bytes, size: int = 2**16) -> Any:
    stream = b"".join((*events, DONE))
    assembly = Assembly("messages", StreamMeter(0))
    for at in range(0, len(stream), size):
        assembly.feed(stream[at : at + size])
    return json.loads(assembly.whole())


def _choice(*events: bytes) -> Any:
    return _assembled(*events)["choices"][0]


def _event(**said: Any) -> bytes:
    return b"data: " + json.dumps(said, ensure_ascii=False).encode() + b"\n\n"


def _refusal(*events: bytes) -> ApiError:
    with pytest.raises(Refused) as refused:
        _assembled(*events)
    return refused.value.error


TALK = (
    chunk({"role": "assistant", "content": None}),
    chunk({"reasoning_content": "Erst "}),
    chunk({"reasoning_content": "北京."}),
    chunk({"content": "Das "}),
    chunk({"content": "Wetter 🌦"}),
    chunk(call(0, "", "weather")),
    chunk(call(0, '{"place":')),
    chunk(call(1, "{}", "clock")),
    chunk(call(0, '"北京"}')),
    chunk({}, "tool_calls", matched_stop=7),
    USAGE,
)


@pytest.mark.parametrize("size", [1, 3, 2**16])
def test_texts_calls_and_the_end_come_together_wherever_the_stream_is_cut(size: int) -> None:
    weather = {"name": "weather", "arguments": '{"place":"北京"}'}
    clock = {"name": "clock", "arguments": "{}"}
    assert _assembled(*TALK, size=size) == {
        "id": "c1",
        "object": "chat.completion",
        "model": "paced",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "matched_stop": 7,
                "message": {
                    "role": "assistant",
                    "content": "Das Wetter 🌦",
                    "reasoning_content": "Erst 北京.",
                    "tool_calls": [
                        {"id": "call_0", "type": "function", "function": weather},
                        {"id": "call_1", "type": "function", "function": clock},
                    ],
                },
            }
        ],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    }


def test_openais_own_client_makes_the_same_of_the_stream() -> None:
    """Of what its types know: it numbers the calls, and has other words for the rest."""
    logprobs = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]}
    *said, end, _ = TALK
    events = [*said, chunk({"content": "!"}, logprobs=logprobs), end]
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for event in events:
        parsed = {"created": 1, **json.loads(event.removeprefix(b"data: "))}
        state.handle_chunk(ChatCompletionChunk.model_validate(parsed))
    theirs = state.current_completion_snapshot.choices[0]
    ours = _choice(*events)
    assert ours["message"]["content"] == theirs.message.content
    assert ours["finish_reason"] == theirs.finish_reason
    assert [each["function"] for each in ours["message"]["tool_calls"]] == [
        each.function.model_dump(include={"name", "arguments"})
        for each in theirs.message.tool_calls or ()
    ]
    assert theirs.logprobs is not None
    assert ours["logprobs"]["content"] == [
        each.model_dump() for each in theirs.logprobs.content or ()
    ]


def test_the_chances_of_all_tokens_follow_each_other() -> None:
    def chances(*tokens: str) -> dict[str, Any]:
        return {"content": [{"token": token, "index": 3} for token in tokens], "refusal": None}

    said = _choice(
        chunk({"content": "a"}, logprobs=chances("a")),
        chunk({"content": "bc"}, logprobs=chances("b", "c")),
        chunk({}, "stop", logprobs=None),
    )
    assert said["logprobs"] == chances("a", "b", "c")


def test_completions_have_texts_and_lists_of_chances() -> None:
    def piece(text: str, at: int, finish: str | None = None) -> bytes:
        # A token may be called as a field is.
        chances = {"tokens": [text], "text_offset": [at], "top_logprobs": [{"index": -0.1}]}
        choice = {"index": 0, "text": text, "logprobs": chances, "finish_reason": finish}
        return _event(object="text_completion", choices=[choice])

    assert _assembled(piece("Pa", 0), piece("ris", 2, "stop")) == {
        "object": "text_completion",
        "choices": [
            {
                "index": 0,
                "text": "Paris",
                "finish_reason": "stop",
                "logprobs": {
                    "tokens": ["Pa", "ris"],
                    "text_offset": [0, 2],
                    "top_logprobs": [{"index": -0.1}, {"index": -0.1}],
                },
            }
        ],
    }


def test_several_answers_are_kept_apart_and_in_order() -> None:
    def piece(number: int, text: str, finish: str | None = None) -> bytes:
        choice = {"index": number, "delta": {"content": text}, "finish_reason": finish}
        return _event(choices=[choice])

    # So llama.cpp begins where it is given several prompts.
    null = b"data: null\n\n"
    said = _assembled(null, piece(1, "b"), piece(0, "a"), piece(1, "b", "stop"), piece(0, "a"))
    texts = [(each["index"], each["message"]["content"]) for each in said["choices"]]
    assert texts == [(0, "aa"), (1, "bb")]
    assert [each["finish_reason"] for each in said["choices"]] == [None, "stop"]


def test_what_nobody_knows_is_kept() -> None:
    said = _assembled(
        _event(id="1", system_fingerprint="b7", choices=[], prompt_filter=[1]),
        chunk({"content": "a", "citations": [1], "mood": {"now": "gl", "level": 1}}, token_ids=[5]),
        chunk({"content": "b", "citations": [2], "mood": {"now": "ad", "level": 2}}, token_ids=[6]),
        _event(id="1", system_fingerprint=None, choices=[], timings={"predicted_n": 2}),
    )
    assert said["system_fingerprint"] == "b7"
    assert said["prompt_filter"] == [1]
    assert said["timings"] == {"predicted_n": 2}
    assert said["choices"][0]["token_ids"] == [5, 6]
    assert said["choices"][0]["message"] == {
        "role": "assistant",
        "content": "ab",
        "citations": [1, 2],
        "mood": {"now": "glad", "level": 2},
    }


@pytest.mark.parametrize(
    ("deltas", "content"),
    [
        ([{"role": "assistant", "content": None}, {}], ""),
        ([{}], ""),
        ([{"content": ""}, call(0, "{}", "clock")], None),
        ([{"reasoning_content": "hm"}], ""),
    ],
)
def test_a_message_without_a_text_has_an_empty_one_or_calls_in_its_place(
    deltas: list[dict[str, Any]], content: str | None
) -> None:
    message = _choice(*map(chunk, deltas))["message"]
    assert message["role"] == "assistant"
    assert message["content"] == content


def test_an_error_that_is_null_is_none() -> None:
    said = _assembled(chunk({"content": "a"}), _event(id="1", error=None, choices=[]))
    assert said["choices"][0]["message"]["content"] == "a"


def test_a_name_that_is_said_again_is_said_once() -> None:
    again = call(0, "}", "clock")
    (said,) = _choice(chunk(call(0, "{", "clock")), chunk(again))["message"]["tool_calls"]
    assert said["function"] == {"name": "clock", "arguments": "{}"}
    assert (said["id"], said["type"]) == ("call_0", "function")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ({"message": "out of memory", "code": 500}, 500, "engine_refused"),
        ({"message": "no", "code": 429}, 429, "engine_refused"),
        ({"message": "broken", "code": "internal"}, 502, "engine_refused"),
        ("broken", 502, "engine_refused"),
        (
            {"message": "request (9 tokens) exceeds the available context size (8 tokens)",
             "code": 400},
            400,
            "context_length_exceeded",
        ),
    ],
)  # fmt: skip
def test_an_error_in_the_stream_is_the_answers_status(error: Any, status: int, code: str) -> None:
    refused = _refusal(chunk({"content": "half"}), _event(error=error))
    assert (refused.status, refused.code) == (status, code)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [b": ping\n\n"],
        [b"data: nonsense\n\n"],
        [_event(choices=7)],
        [b"data: 7\n\n"],
        [chunk({"content": "a"}), chunk({"content": {"b": 1}})],
        [chunk({"content": "a"}), chunk({"content": [1]})],
    ],
)
def test_what_is_no_answer_is_the_engines_fault(events: list[bytes]) -> None:
    refused = _refusal(*events)
    assert (refused.status, refused.code) == (502, "engine_answer_unusable")

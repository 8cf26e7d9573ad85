"""What a policy changes in a request, and that it changes nothing else."""

import json
from typing import Any

import orjson
import pytest

from gateway.dialects.openai import CHAT, COMPLETIONS, Generation
from gateway.engine_request import EngineRequest
from gateway.policy import Policy
from images.gateway.tests.shaping_support import chat, policy, refusal_of, shape

HELLO = [{"role": "user", "content": "北京 🐼"}]


def _sent(asked: EngineRequest) -> Any:
    assert asked.body is not None
    return json.loads(asked.body)


def test_an_alias_becomes_the_engines_own_name() -> None:
    here = policy(model={"public": "chat", "engine": "TinySeek-Q4"})
    assert _sent(shape(chat(model="chat"), here))["model"] == "TinySeek-Q4"
    assert _sent(shape(chat(), here))["model"] == "TinySeek-Q4"


def test_another_model_than_the_alias_is_not_found() -> None:
    refused = refusal_of(chat(model="gpt-4"), policy(model={"public": "chat"}))
    assert (refused.status, refused.code, refused.param) == (404, "model_not_found", "model")
    assert refused.message == "There is no model 'gpt-4' here; there is 'chat'."


@pytest.mark.parametrize(
    ("asked", "sent", "cap"),
    [
        ({}, {"max_tokens": 50}, 50),
        ({"max_tokens": None}, {"max_tokens": 50}, 50),
        ({"max_tokens": 7}, {"max_tokens": 7}, 7),
        ({"max_tokens": 7.0}, {"max_tokens": 7}, 7),
        ({"max_tokens": 51}, {"max_tokens": 50}, 50),
        ({"max_completion_tokens": 99}, {"max_completion_tokens": 50}, 50),
        ({"max_tokens": 9, "max_completion_tokens": 99},
         {"max_tokens": 9, "max_completion_tokens": 50}, 9),
    ],
)  # fmt: skip
def test_the_length_of_an_answer_is_clamped(
    asked: dict[str, Any], sent: dict[str, int], cap: int
) -> None:
    shaped = shape(chat(**asked), policy(model={"max_tokens": 50}))
    assert _sent(shaped) == {"messages": [], **sent}
    assert shaped.max_tokens_cap == cap


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"max_tokens": -1}, "'max_tokens' must be a whole number of at least 1, not -1."),
        ({"max_tokens": True}, "'max_tokens' must be a whole number of at least 1, not true."),
        ({"max_tokens": 1.5}, "'max_tokens' must be a whole number of at least 1, not 1.5."),
        ({"stream": "yes"}, "'stream' must be true or false, not \"yes\"."),
        ({"messages": "hi"}, "'messages' must be a list of objects, each with a role, not \"hi\"."),
        ({"messages": None}, "'messages' is missing."),
        ({"stop": [1]}, "'stop' must be a text or a list of texts, not [1]."),
        ({"model": "x" * 9, "tools": ["é" * 99]},
         "'tools' must be a list of objects, not [\"" + "é" * 58 + "...."),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_refused_by_its_name(
    asked: dict[str, Any], message: str
) -> None:
    refused = refusal_of(chat(**asked), policy())
    assert (refused.status, refused.code, refused.message) == (400, "invalid_value", message)
    assert refused.param == message.split("'")[1]


def test_a_default_system_message_comes_first_and_only_where_there_is_none() -> None:
    here = policy(defaults={"system_message": "Sei höflich 🙂."})
    shaped = shape(chat(messages=HELLO), here)
    told = {"role": "system", "content": "Sei höflich 🙂."}
    assert _sent(shaped)["messages"] == [told, *HELLO]
    assert shaped.body is not None
    assert "höflich 🙂".encode() in shaped.body
    for role in ("system", "developer"):
        own = chat(messages=[{"role": role, "content": "x"}, *HELLO])
        assert shape(own, here).body == own


def test_default_sampling_fills_what_the_request_leaves_open() -> None:
    here = policy(defaults={"sampling": {"temperature": 0.6, "top_p": 0.9}})
    assert _sent(shape(chat(temperature=0, top_p=None), here)) == {
        "messages": [],
        "temperature": 0,
        "top_p": 0.9,
    }


def test_what_is_only_added_leaves_the_rest_byte_for_byte() -> None:
    body = b'{ "messages" : [] , "top_p":1.0e0, "stop":"\\u5317" }\n'
    sent = shape(body, policy(defaults={"sampling": {"top_k": 4}})).body
    assert sent == b'{ "messages" : [] , "top_p":1.0e0, "stop":"\\u5317","top_k":4}'


@pytest.mark.parametrize(
    ("lacking", "asked", "param"),
    [
        ("tools", {"tools": [{"type": "function"}]}, "tools"),
        ("tools", {"tool_choice": "required"}, "tool_choice"),
        ("json_mode", {"response_format": {"type": "json_object"}}, "response_format"),
        ("logprobs", {"logprobs": True}, "logprobs"),
        ("logprobs", {"top_logprobs": 2}, "top_logprobs"),
        ("logprobs", {"prompt": "x", "logprobs": 0}, "logprobs"),
        ("n", {"n": 2}, "n"),
    ],
)
def test_what_the_engine_lacks_is_refused_by_name(
    lacking: str, asked: dict[str, Any], param: str
) -> None:
    assert shape(chat(**asked), policy()).admitted
    refused = refusal_of(chat(**asked), policy(capabilities={lacking: False}))
    assert (refused.status, refused.code, refused.param) == (400, "unsupported_parameter", param)
    assert refused.message == f"This model's engine does not support '{param}'."


def test_asking_for_nothing_is_no_use_of_what_the_engine_lacks() -> None:
    lacking = dict.fromkeys(("tools", "json_mode", "logprobs", "n"), False)
    body = chat(tools=[], tool_choice="none", response_format={"type": "text"}, logprobs=False, n=1)
    assert shape(body, policy(capabilities=lacking)).body == body


@pytest.mark.parametrize(
    ("options", "kept"),
    [(None, False), ({"include_obfuscation": False}, False), ({"include_usage": False}, False),
     ({"include_usage": True}, True)],
)  # fmt: skip
def test_a_stream_always_asks_the_engine_for_its_usage(
    options: dict[str, Any] | None, kept: bool
) -> None:
    asked = shape(chat(stream=True, stream_options=options), policy())
    assert _sent(asked)["stream_options"] == {**(options or {}), "include_usage": True}
    assert asked.usage_asked is kept


def test_an_answer_without_stream_is_not_asked_for_usage() -> None:
    assert shape(chat(), policy()).body == chat()


@pytest.mark.parametrize(
    "said",
    [{}, {"stream": False}, {"stream": None},
     {"stream": False, "stream_options": {"include_usage": True}}],
)  # fmt: skip
@pytest.mark.parametrize("model", [{}, {"engine": "TinySeek-Q4"}])
def test_a_stream_is_asked_for_whatever_else_is_changed(
    said: dict[str, Any], model: dict[str, str]
) -> None:
    here = Policy.model_validate({"model": model})
    asked = shape(chat(model="any", **said), here)
    assert (asked.stream, asked.assembled) == (False, True)
    assert (_sent(asked)["stream"], _sent(asked)["model"]) == (True, model.get("engine", "any"))
    assert _sent(asked) == asked.parsed


def test_a_later_turn_begins_with_the_digests_of_the_earlier_one() -> None:
    first = shape(chat(messages=HELLO), policy()).prefix
    answer = {"content": "是", "role": "assistant"}
    second = shape(chat(messages=[*HELLO, answer, HELLO[0]]), policy()).prefix
    assert (len(first), len(second)) == (1, 3)
    swapped = [{"content": "北京 🐼", "role": "user"}]
    assert shape(chat(messages=swapped), policy()).prefix == first
    assert second[:1] == first
    assert shape(chat(messages=HELLO, tools=[{"type": "function"}]), policy()).prefix != first
    assert shape(chat(messages=[*HELLO, HELLO[0]]), policy()).prefix[1] not in second


def test_a_longer_text_prompt_begins_with_the_digests_of_its_beginning() -> None:
    beginning = shape(chat(prompt="ä" * 2048), policy()).prefix
    longer = shape(chat(prompt="ä" * 2048 + "b"), policy()).prefix
    assert longer[: len(beginning)] == beginning
    assert len(longer) == 3


def test_open_webuis_own_questions_are_background() -> None:
    task = "### Task:\nGenerate a concise, 3-5 word title"
    assert shape(chat(messages=[{"role": "user", "content": task}]), policy()).background
    assert not shape(chat(messages=HELLO), policy()).background


def test_a_picture_is_no_prompt_of_many_tokens() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:" + "A" * 400_000}}
    asked = orjson.loads(chat(messages=[{"role": "user", "content": [picture]}]))
    assert shape(orjson.dumps(asked), policy()).prompt_tokens_estimate < 100


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b'{"object":"error","message":"too long","code":400}', "too long"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"error":"busy"}', "busy"),
        (b"<html>", "The engine refused this request with 400."),
    ],
)
def test_an_engines_refusal_takes_openais_shape(said: bytes, message: str) -> None:
    told = json.loads(CHAT.whole(shape(chat(), policy()), 400, said, policy()))["error"]
    assert (told["message"], told["type"]) == (message, "invalid_request_error")


def test_a_refusal_in_openais_shape_passes_as_it_is() -> None:
    said = b'{ "error" : {"message":"x","type":"y","code":null,"param":null} }'
    assert CHAT.whole(shape(chat(), policy()), 400, said, policy()) == said


def test_a_number_is_no_code_of_openais() -> None:
    said = b'{"error":{"code":400,"message":"x","type":"invalid_request_error"}}'
    told = json.loads(CHAT.whole(shape(chat(), policy()), 400, said, policy()))
    assert told["error"] == {
        "message": "x",
        "type": "invalid_request_error",
        "param": None,
        "code": "engine_refused",
    }


OVERFLOWS = {
    "llama.cpp": {
        "code": 400,
        "message": "request (9000 tokens) exceeds the available context size (4096 tokens), "
        "try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 9000,
        "n_ctx": 4096,
    },
    "sglang": {
        "code": 400,
        "message": "The input (9000 tokens) is longer than the model's context length "
        "(4096 tokens).",
        "type": "BadRequestError",
    },
    "sglang with max_tokens": {
        "code": 400,
        "message": "Requested token count exceeds the model's maximum context length of 4096 "
        "tokens. You requested a total of 9000 tokens: 8000 tokens from the input messages and "
        "1000 tokens for the completion.",
        "type": "BadRequestError",
    },
}


@pytest.mark.parametrize("error", OVERFLOWS.values(), ids=OVERFLOWS)
@pytest.mark.parametrize(
    ("dialect", "asked", "param"),
    [(CHAT, {"messages": []}, "messages"), (COMPLETIONS, {"prompt": "x"}, "prompt")],
)
def test_an_overflow_that_the_engine_finds_is_said_as_the_gateway_says_it(
    error: dict[str, object], dialect: Generation, asked: dict[str, object], param: str
) -> None:
    said = json.dumps({"error": error}).encode()
    told = json.loads(dialect.whole(shape(chat(**asked), policy()), 400, said, policy()))
    assert told["error"] == {
        "message": "This model's context is 4096 tokens; the prompt has 9000.",
        "type": "invalid_request_error",
        "param": param,
        "code": "context_length_exceeded",
    }


@pytest.mark.parametrize(("asked", "granted"), [(-1, 50), (9999, 50), (7, 7)])
def test_llamacpps_own_word_for_the_length_is_clamped_too(asked: int, granted: int) -> None:
    """It puts it above max_tokens."""
    shaped = shape(chat(max_tokens=5, n_predict=asked), policy(model={"max_tokens": 50}))
    assert json.loads(shaped.body or b"")["n_predict"] == granted
    free = shape(chat(n_predict=asked), policy())
    assert json.loads(free.body or b"")["n_predict"] == asked


def test_several_answers_cost_as_much_as_several_requests() -> None:
    assert shape(chat(max_tokens=7, n=3), policy()).max_tokens_cap == 21
    assert shape(chat(prompt="x", max_tokens=7, best_of=4), policy()).max_tokens_cap == 28
    for prompts, answers in ((["x", "y"], 2), ([[1, 2], [3], [4]], 3), ([1, 2, 3], 1), ([], 1)):
        asked = chat(prompt=prompts, max_tokens=7)
        assert shape(asked, policy()).max_tokens_cap == 7 * answers
    assert refusal_of(chat(prompt=["x"] * 129), policy()).param == "prompt"
    assert refusal_of(chat(prompt=[[1]] * 129), policy()).param == "prompt"
    refused = refusal_of(chat(n=129), policy())
    assert refused.message == "'n' must be a whole number of at least 1 and at most 128, not 129."


def test_what_is_small_on_the_way_and_huge_in_memory_is_400() -> None:
    bomb = b'{"messages":[],"tools":[' + b"{}," * 10**6 + b"{}]}"
    assert refusal_of(bomb, policy()).code == "invalid_json"


@pytest.mark.parametrize("where", ["messages", "tools", "stop"])
def test_what_is_too_deep_to_be_written_again_is_400(where: str) -> None:
    deep = b"[" * 300 + b"]" * 300
    given = {"messages": b"[]", "tools": b"[]", "stop": b'"x"'}
    given[where] = {"messages": b'[{"role":"user","content":%s}]', "tools": b'[{"a":%s}]'}.get(
        where, b"%s"
    ) % deep
    fields = b",".join(b'"%s":%s' % (name.encode(), value) for name, value in given.items())
    error = refusal_of(b'{"max_tokens":99,%s}' % fields, policy(model={"max_tokens": 50}))
    assert (error.status, error.message) == (
        400,
        "The request body is nested too deeply, or of too many objects.",
    )

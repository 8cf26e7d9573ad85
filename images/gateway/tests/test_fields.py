"""Which fields a request may hold. What is not on the list never reaches the engine."""

import json
from typing import Any

import pytest
from openai.types import completion_create_params as completions
from openai.types.chat import completion_create_params as chats

from gateway.dialects.openai_fields import CHAT_FIELDS, COMPLETIONS_FIELDS
from gateway.fields import Fields
from images.gateway.tests.pacing import paced_messages
from images.gateway.tests.shaping_support import chat, policy, refusal_of, shape
from images.gateway.tests.support import CHAT, Gateway, chat_body, new_id
from paced_engine.running import RunningEngine

# What the engines take beyond OpenAI's API (llama.cpp's server, sglang 0.5's protocol.py), and what
# each would do: another's slot and cache, code, an id to abort by, first place, files, internals.
ENGINES_OWN: dict[str, Any] = {
    "id_slot": 0,
    "cache_prompt": False,
    "lora": [{"id": 0, "scale": 1}],
    "grammar": "root ::= x",
    "samplers": ["top_k"],
    "response_fields": ["x"],
    "return_tokens": True,
    "t_max_predict_ms": 1,
    "n_keep": -1,
    "verbose": True,
    "reasoning_format": "none",
    "custom_logit_processor": "gASVAAAA",
    "custom_params": {},
    "priority": 9,
    "rid": "x",
    "lora_path": "/x",
    "session_params": {},
    "return_hidden_states": True,
    "bootstrap_host": "x",
    "data_parallel_rank": 0,
    "extra_key": "x",
    "cache_salt": "x",
    "regex": "(a+)+$",
    "ebnf": "x",
    "stop_regex": "(a+)+$",
}
COMMON = {
    "top_k": 4,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "repeat_penalty": 1.1,
    "seed": 1,
    "min_tokens": 1,
    "ignore_eos": True,
    "reasoning_effort": "low",
    "chat_template_kwargs": {"thinking": False, "enable_thinking": False},
}
# open_webui 0.12.4: utils/payload.py and routers/openai.py, of a connection to such an API as ours.
OPEN_WEBUIS = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 4,
    "min_p": 0.1,
    "max_tokens": 5,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repeat_penalty": 1.1,
    "repeat_last_n": 64,
    "reasoning_effort": "low",
    "seed": 1,
    "stop": ["x"],
    "logit_bias": {"5": -100},
    "response_format": {"type": "json_object"},
    "tools": [],
    "tool_choice": "auto",
    "continue_final_message": True,
    "add_generation_prompt": False,
}


@pytest.mark.parametrize("name", ENGINES_OWN)
def test_what_an_engine_alone_knows_is_refused_by_its_name(name: str) -> None:
    for body in (chat(**{name: ENGINES_OWN[name]}), chat(prompt="x", **{name: None})):
        refused = refusal_of(body, policy())
        assert (refused.status, refused.kind) == (400, "invalid_request_error")
        assert (refused.code, refused.param) == ("unknown_parameter", name)
        assert refused.message.startswith(f"Unrecognized request argument supplied: {name}.")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats"),
        ({"response_format": {"type": "json_object", "schema": {}}}, "response_format.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"regex": "x"}}},
         "response_format.json_schema.regex"),
        # transformers' apply_chat_template takes these for its own arguments.
        ({"chat_template_kwargs": {"chat_template": "{{ x }}"}}, "chat_template_kwargs.chat_template"),
        ({"chat_template_kwargs": {"tokenize": False}}, "chat_template_kwargs.tokenize"),
        ({"x" * 99: 1}, "x" * 60 + "..."),
    ],
)  # fmt: skip
def test_what_nobody_knows_is_refused_further_in_too(fields: dict[str, Any], param: str) -> None:
    refused = refusal_of(chat(**fields), policy())
    assert (refused.code, refused.param) == ("unknown_parameter", param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"response_format": {"type": "structural_tag"}}, "response_format.type"),
        ({"response_format": {}}, "response_format.type"),
        ({"chat_template_kwargs": {"thinking": "{{ x }}"}}, "chat_template_kwargs.thinking"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        # OpenAI's own bound; and a length of which llama.cpp makes a list, however long.
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"repeat_last_n": 10**9}, "repeat_last_n"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_further_in_too(
    fields: dict[str, Any], param: str
) -> None:
    refused = refusal_of(chat(**fields), policy())
    assert (refused.code, refused.param) == ("invalid_value", param)


@pytest.mark.parametrize(
    ("published", "fields"),
    [
        (chats.CompletionCreateParamsStreaming, CHAT_FIELDS),
        (completions.CompletionCreateParamsStreaming, COMPLETIONS_FIELDS),
    ],
)
def test_every_field_that_openai_publishes_is_known(published: Any, fields: Fields) -> None:
    names = published.__required_keys__ | published.__optional_keys__
    assert "stream" in names
    assert names <= {*fields.kinds, *fields.unused, *fields.lacking}


def test_what_is_openais_and_of_no_use_is_left_out() -> None:
    of_no_use = {
        "user": {"name": "x"},
        "metadata": {"chat": "1"},
        "store": True,
        "service_tier": "flex",
        "prompt_cache_key": "x",
        "safety_identifier": "x",
        "modalities": ["text"],
        "verbosity": "low",
    }
    shaped = shape(chat(**of_no_use, top_p=0.5), policy())
    assert json.loads(shaped.body or b"") == shaped.parsed == {"messages": [], "top_p": 0.5}
    assert json.loads(shape(chat(prompt="x", user="x"), policy()).body or b"") == {"prompt": "x"}


@pytest.mark.parametrize("name", ["functions", "function_call", "audio", "web_search_options"])
def test_what_is_openais_and_no_engine_can_do_is_refused(name: str) -> None:
    refused = refusal_of(chat(**{name: {}}), policy())
    assert (refused.code, refused.param) == ("unsupported_parameter", name)
    assert shape(chat(**{name: None}), policy()).admitted


@pytest.mark.parametrize("fields", [COMMON, OPEN_WEBUIS])
def test_what_is_common_beyond_openai_passes_byte_for_byte(fields: dict[str, Any]) -> None:
    body = chat(**fields)
    assert shape(body, policy()).body == body


def test_an_unknown_field_reaches_no_engine_and_one_of_no_use_neither(
    gateway: Gateway, engine: RunningEngine
) -> None:
    refused_id, passed_id = new_id(), new_id()
    forged = b'{"id_slot":0,' + chat_body(tick_s=0.0)[1:]
    refused = gateway.ask("POST", CHAT, forged, {"x-request-id": refused_id})
    assert (refused.status, refused.json()["error"]["param"]) == (400, "id_slot")
    asked = {
        "messages": paced_messages(tick_s=0.0),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body = json.dumps({**asked, "user": "me", "metadata": {}}).encode()
    assert gateway.ask("POST", CHAT, body, {"x-request-id": passed_id}).status == 200
    assert json.loads(engine.body_of(engine.wait(passed_id, until="ended"))) == asked
    assert refused_id not in {seen["request_id"] for seen in engine.seen()}


def test_the_document_says_that_there_is_nothing_else(gateway: Gateway) -> None:
    paths = gateway.ask("GET", "/openapi.json").json()["paths"]
    for path in (CHAT, "/v1/completions", "/tokenize"):
        schema = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert schema["additionalProperties"] is False


def test_tokenize_takes_no_more_than_it_names(gateway: Gateway) -> None:
    asked = {"prompt": "x", "chat_template_kwargs": {"chat_template": "x"}}
    refused = gateway.ask("POST", "/tokenize", json.dumps(asked).encode())
    assert refused.json()["error"]["param"] == "chat_template_kwargs.chat_template"

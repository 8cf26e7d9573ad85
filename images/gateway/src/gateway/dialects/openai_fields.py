"""What a request of OpenAI's API may hold: OpenAI's own fields, and what engines have beyond them.

Deny by default. An engine takes far more from a body than anybody should tell it from outside: a
slot's number, code that it unpickles, another request's id, a place before all others, a template.
"""

from gateway.fields import (
    ANYTHING,
    FLAG,
    MESSAGES,
    NUMBER,
    OBJECT,
    OBJECTS,
    TEXT,
    TEXT_OR_OBJECT,
    TEXT_OR_TEXTS,
    Fields,
    Kind,
    closed,
    either,
    just,
    list_of,
    whole_number,
)

MOST_ANSWERS = 128
"""To one request, which has one permit for them all. As in OpenAI's own API, but for its prompts."""
MOST_LOGPROBS = 20
# llama.cpp takes memory for as many as it is told, at once.
_MOST_LOOKED_BACK_AT = 2**16
_GENERATION = {
    "model": TEXT,
    "stream": FLAG,
    "stream_options": closed({"include_usage": FLAG, "include_obfuscation": FLAG}),
    "n": whole_number(1, MOST_ANSWERS),
    "temperature": NUMBER,
    "top_p": NUMBER,
    "stop": TEXT_OR_TEXTS,
    "seed": whole_number(),
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "logit_bias": OBJECT,
}
# Not OpenAI's. Each is known to one of the engines at least, and concerns this one answer alone.
_COMMON_EXTRAS = {
    "n_predict": whole_number(),
    "top_k": whole_number(),
    "min_p": NUMBER,
    "typical_p": NUMBER,
    "repetition_penalty": NUMBER,
    "repeat_penalty": NUMBER,
    "repeat_last_n": whole_number(-1, _MOST_LOOKED_BACK_AT),
    "min_tokens": whole_number(0),
    "ignore_eos": FLAG,
}
# Only what templates know: an engine hands every other name to its tokenizer's own method, where
# one of them replaces the template.
TEMPLATE = closed(
    {
        "thinking": FLAG,
        "enable_thinking": FLAG,
        "preserve_thinking": FLAG,
        "clear_thinking": FLAG,
        "reasoning_effort": TEXT,
    }
)
_JSON_SCHEMA = closed({"name": TEXT, "description": TEXT, "schema": OBJECT, "strict": FLAG})
_FORMAT = closed(
    {"type": just("text", "json_object", "json_schema"), "json_schema": _JSON_SCHEMA},
    required=("type",),
)
# For OpenAI's own house: its books, its caches, its tiers.
_UNUSED = {"user": ANYTHING}
CHAT_FIELDS = Fields(
    {
        **_GENERATION,
        **_COMMON_EXTRAS,
        "messages": MESSAGES,
        "max_tokens": whole_number(1),
        "max_completion_tokens": whole_number(1),
        "tools": OBJECTS,
        "tool_choice": TEXT_OR_OBJECT,
        "parallel_tool_calls": FLAG,
        "response_format": _FORMAT,
        "logprobs": FLAG,
        "top_logprobs": whole_number(0, MOST_LOGPROBS),
        "reasoning_effort": TEXT,
        "chat_template_kwargs": TEMPLATE,
        # How Open-WebUI has an engine go on with an answer that was cut.
        "continue_final_message": FLAG,
        "add_generation_prompt": FLAG,
    },
    required=("messages",),
    closed=True,
    unused={
        **_UNUSED,
        "metadata": ANYTHING,
        "modalities": list_of(just("text"), "'text'"),
        "prediction": ANYTHING,
        "prompt_cache_key": ANYTHING,
        "prompt_cache_options": ANYTHING,
        "prompt_cache_retention": ANYTHING,
        "safety_identifier": ANYTHING,
        "service_tier": ANYTHING,
        "store": ANYTHING,
        "verbosity": ANYTHING,
    },
    lacking=("audio", "function_call", "functions", "moderation", "web_search_options"),
)
_TOKENS: Kind = list_of(whole_number(0), "token numbers")
COMPLETIONS_FIELDS = Fields(
    {
        **_GENERATION,
        **_COMMON_EXTRAS,
        "prompt": either(
            either(TEXT, list_of(TEXT, "texts", MOST_ANSWERS)),
            either(_TOKENS, list_of(_TOKENS, "such lists", MOST_ANSWERS)),
        ),
        "max_tokens": whole_number(0),
        "logprobs": whole_number(0, MOST_LOGPROBS),
        "best_of": whole_number(1, MOST_ANSWERS),
        "echo": FLAG,
    },
    required=("prompt",),
    closed=True,
    unused=_UNUSED,
    lacking=("suffix",),
)

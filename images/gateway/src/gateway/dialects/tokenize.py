"""What a prompt becomes for the model: by its own tokenizer, else the engine is asked."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from gateway.counting import Counter, counter_of
from gateway.dialects.openai_fields import TEMPLATE
from gateway.engine_counting import asks_engine
from gateway.engine_request import Counted, EngineRequest, read_object
from gateway.errors import Headers, OpenAIVoice
from gateway.fields import FLAG, MESSAGES, OBJECTS, TEXT, Fields
from gateway.filters import Filter
from gateway.policy import Policy

TOKENIZE_PATH = "/tokenize"

TOKENIZE_FIELDS = Fields(
    {
        "model": TEXT,
        "prompt": TEXT,
        "content": TEXT,
        "messages": MESSAGES,
        "tools": OBJECTS,
        "chat_template_kwargs": TEMPLATE,
        "add_special_tokens": FLAG,
    },
    one_of=("prompt", "content", "messages"),
    closed=True,
)


class Tokenize(OpenAIVoice):
    """`prompt` (or `content`, as llama.cpp has it) as it is, or `messages` in the chat template."""

    method = "POST"
    path = TOKENIZE_PATH

    def read(self, body: bytes, policy: Policy) -> EngineRequest:
        parsed = read_object(body)
        TOKENIZE_FIELDS.check(parsed)
        counter = counter_of(policy)
        answer_of = None
        if asks_engine(policy):
            parsed = _to_count(parsed)

            def answer_of(counted: Counted) -> bytes:
                return _told(counted, policy)

        return EngineRequest(
            method="POST",
            path=self.path,
            body=body,
            parsed=parsed,
            admitted=False,
            answer=None if counter is None else _answer(counter, parsed, policy),
            answer_of=answer_of,
        )

    def filters(self, asked: EngineRequest, policy: Policy) -> Sequence[Filter]:  # noqa: ARG002 - a Dialect
        return ()

    def stream_headers(self, headers: Headers) -> Headers:
        return headers

    def whole(self, asked: EngineRequest, status: int, body: bytes, policy: Policy) -> bytes:  # noqa: ARG002 - a Dialect
        return body

    def comment(self, text: str) -> bytes:  # noqa: ARG002 - a Dialect
        return b""


def _answer(counter: Counter, parsed: Mapping[str, Any], policy: Policy) -> bytes:
    if parsed.get("messages") is not None:
        tokens = counter.chat_tokens(parsed)
    else:
        text = parsed["prompt"] if parsed.get("prompt") is not None else parsed["content"]
        tokens = counter.tokens(text, special=parsed.get("add_special_tokens") is not False)
    return _told(Counted(count=len(tokens), tokens=tokens), policy)


def _to_count(parsed: Mapping[str, Any]) -> Mapping[str, Any]:
    """As the engine's own dialect has it: `messages` before `prompt`, which `content` is here."""
    if parsed.get("messages") is not None:
        return {name: value for name, value in parsed.items() if name != "prompt"}
    prompt = parsed["prompt"] if parsed.get("prompt") is not None else parsed["content"]
    return {"prompt": prompt, "add_special_tokens": parsed.get("add_special_tokens")}


def _told(counted: Counted, policy: Policy) -> bytes:
    tokens = {} if counted.tokens is None else {"tokens": counted.tokens}
    numbers = {"count": counted.count, "max_model_len": policy.model.context_tokens}
    return orjson.dumps({**tokens, **numbers})

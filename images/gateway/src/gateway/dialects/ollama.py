"""Ollama's API for chats and generations, made of the engine's own."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson

from gateway.dialects.engine_errors import answer_in
from gateway.dialects.ollama_answer import Lines, Shape, line, whole_of
from gateway.dialects.ollama_request import NAMES, chat_of, generation_of, plain_name
from gateway.dialects.openai import CHAT_PATH, COMPLETIONS_PATH, split_answer, think_filters
from gateway.dialects.openai_fields import MOST_LOGPROBS
from gateway.engine_refusals import engine_error
from gateway.engine_request import EngineRequest, read_object
from gateway.errors import ApiError, Headers, Refusal, Refused
from gateway.fields import (
    FLAG,
    NUMBER,
    OBJECT,
    OBJECTS,
    TEXT,
    TEXT_OR_TEXTS,
    Fields,
    Kind,
    either,
    just,
    list_of,
    record,
    whole_number,
)
from gateway.filters import Filter
from gateway.policy import Policy
from gateway.request_errors import model_not_found

OLLAMA_CHAT_PATH = "/api/chat"
GENERATE_PATH = "/api/generate"

_OPTIONS = Fields(
    {
        "num_predict": whole_number(),
        "temperature": NUMBER,
        "top_p": NUMBER,
        "top_k": whole_number(),
        "min_p": NUMBER,
        "seed": whole_number(),
        "stop": TEXT_OR_TEXTS,
        "repeat_penalty": NUMBER,
        "presence_penalty": NUMBER,
        "frequency_penalty": NUMBER,
    }
)
_COMMON = {
    "model": TEXT,
    "stream": FLAG,
    "options": Kind("an object", _OPTIONS.schema(), lambda value: isinstance(value, dict)),
    "format": either(just("", "json"), OBJECT),
    "think": either(FLAG, TEXT),
    "keep_alive": either(TEXT, NUMBER),
    "logprobs": FLAG,
    "top_logprobs": whole_number(0, MOST_LOGPROBS),
}
_CALL = record({"function": record({"name": TEXT}, {"arguments": OBJECT})})
_MESSAGE = record(
    {"role": TEXT},
    {
        "content": TEXT,
        "thinking": TEXT,
        "images": list_of(TEXT, "texts in base64"),
        "tool_calls": list_of(_CALL, "calls"),
    },
)
OLLAMA_CHAT_FIELDS = Fields(
    {**_COMMON, "messages": list_of(_MESSAGE, "messages of this API"), "tools": OBJECTS},
    required=("model",),
)
GENERATE_FIELDS = Fields(
    {
        **_COMMON,
        "prompt": TEXT,
        "system": TEXT,
        "images": list_of(TEXT, "texts in base64"),
        "raw": FLAG,
    },
    required=("model",),
)


class OllamaVoice:
    """A message is all that its errors have."""

    def refusal(self, error: ApiError) -> Refusal:
        body = orjson.dumps({"error": error.message})
        length = str(len(body)).encode("ascii")
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        return Refusal(error.status, [*headers, *error.own_headers()], body)

    def event(self, error: ApiError) -> bytes:
        return line({"error": error.message})

    def between(self, tail: bytes) -> bytes:
        # Its clients do not skip empty lines.
        return b"" if not tail or tail.endswith(b"\n") else b"\n"


@dataclass(frozen=True, slots=True)
class Ollama(OllamaVoice):
    path: str
    fields: Fields
    is_chat: bool
    method: str = "POST"

    def read(self, body: bytes, policy: Policy) -> EngineRequest:
        parsed = read_object(body)
        self.fields.check(parsed)
        _OPTIONS.check(parsed.get("options") or {})
        if not parsed.get("messages" if self.is_chat else "prompt"):
            return self._loaded(parsed, policy)
        asked = chat_of(parsed) if self.is_chat else generation_of(parsed)
        return EngineRequest(
            method="POST",
            path=COMPLETIONS_PATH if "prompt" in asked else CHAT_PATH,
            body=orjson.dumps(asked),
            parsed=asked,
            stream=asked["stream"],
            read_s=time.monotonic(),
            names=NAMES if self.is_chat else {**NAMES, "messages": "prompt"},
        )

    def filters(self, asked: EngineRequest, policy: Policy) -> Sequence[Filter]:
        lines = Lines(self._shape(asked.parsed, policy), self, asked.read_s)
        return [*think_filters(asked, policy), lines]

    def stream_headers(self, headers: Headers) -> Headers:
        kept = [(name, value) for name, value in headers if name != b"content-type"]
        return [*kept, (b"content-type", b"application/x-ndjson")]

    def whole(self, asked: EngineRequest, status: int, body: bytes, policy: Policy) -> bytes:
        if status >= HTTPStatus.BAD_REQUEST:
            return self.refusal(engine_error(status, body)).body
        answer = answer_in(body)
        if asked.path == CHAT_PATH:
            answer = split_answer(asked, answer, policy) or answer
        return orjson.dumps(whole_of(answer, self._shape(asked.parsed, policy), asked.read_s))

    def comment(self, text: str) -> bytes:  # noqa: ARG002 - its clients take every line for an answer
        return b""

    def _loaded(self, parsed: Mapping[str, Any], policy: Policy) -> EngineRequest:
        """Nothing is asked: a client's way to have the model loaded, which it is."""
        asked, name = parsed["model"], policy.model.public
        if name is not None and plain_name(asked) != name:
            raise Refused(model_not_found(asked, name))
        said = self._shape(parsed, policy).said("")
        answer = line({**said, "done": True, "done_reason": "load"})
        return EngineRequest(method="POST", path=CHAT_PATH, admitted=False, answer=answer)

    def _shape(self, parsed: Mapping[str, Any], policy: Policy) -> Shape:
        return Shape(model=policy.model.public or parsed["model"], is_chat=self.is_chat)


OLLAMA_CHAT = Ollama(OLLAMA_CHAT_PATH, OLLAMA_CHAT_FIELDS, is_chat=True)
GENERATE = Ollama(GENERATE_PATH, GENERATE_FIELDS, is_chat=False)

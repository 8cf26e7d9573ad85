"""Anthropic's Messages API, made of the engine's chat."""

from collections.abc import Sequence
from http import HTTPStatus

import orjson

from gateway.counting import counter_of
from gateway.dialects.anthropic_answer import MessageStream, message_of
from gateway.dialects.anthropic_fields import COUNT_FIELDS, MESSAGES_FIELDS, check
from gateway.dialects.anthropic_request import chat_of
from gateway.dialects.engine_errors import answer_in
from gateway.dialects.openai import CHAT_PATH, split_answer, think_filters
from gateway.engine_counting import asks_engine
from gateway.engine_refusals import engine_error
from gateway.engine_request import Counted, EngineRequest, read_object
from gateway.errors import ApiError, Headers, Refusal
from gateway.filters import Filter
from gateway.policy import Policy

MESSAGES_PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_BYTES_PER_TOKEN = 4
_COUNTED_TOKENS = 10**6


class AnthropicVoice:
    def refusal(self, error: ApiError) -> Refusal:
        body = _envelope(error)
        length = str(len(body)).encode("ascii")
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        return Refusal(error.status, [*headers, *error.own_headers()], body)

    def event(self, error: ApiError) -> bytes:
        return b"event: error\ndata: " + _envelope(error) + b"\n\n"

    def between(self, tail: bytes) -> bytes:
        return b"" if tail.endswith((b"\n\n", b"\r\n\r\n")) else b"\n\n"


class Messages(AnthropicVoice):
    method = "POST"
    path = MESSAGES_PATH

    def read(self, body: bytes, policy: Policy) -> EngineRequest:  # noqa: ARG002 - a Dialect
        parsed = read_object(body)
        check(parsed, MESSAGES_FIELDS)
        asked = chat_of(parsed)
        return EngineRequest(
            method="POST",
            path=CHAT_PATH,
            body=orjson.dumps(asked),
            parsed=asked,
            stream=asked.get("stream") is True,
            names={"stop": "stop_sequences", "response_format": "output_config.format"},
        )

    def filters(self, asked: EngineRequest, policy: Policy) -> Sequence[Filter]:
        events = MessageStream(_name(asked, policy), asked.prompt_tokens_estimate, self)
        return [*think_filters(asked, policy), events]

    def stream_headers(self, headers: Headers) -> Headers:
        return headers

    def whole(self, asked: EngineRequest, status: int, body: bytes, policy: Policy) -> bytes:
        if status >= HTTPStatus.BAD_REQUEST:
            return _envelope(engine_error(status, body))
        answer = answer_in(body)
        answer = split_answer(asked, answer, policy) or answer
        return orjson.dumps(message_of(answer, _name(asked, policy)))

    def comment(self, text: str) -> bytes:
        return f": {text}\n\n".encode()


class CountTokens(AnthropicVoice):
    """How long a prompt is: by the model's tokenizer, or roughly where there is none to ask."""

    method = "POST"
    path = COUNT_PATH

    def read(self, body: bytes, policy: Policy) -> EngineRequest:
        parsed = read_object(body)
        check(parsed, COUNT_FIELDS)
        asked = chat_of(parsed)
        counter = counter_of(policy)
        if counter is None:
            tokens = len(orjson.dumps(asked["messages"])) // _BYTES_PER_TOKEN
        else:
            tokens = counter.count_chat(asked, enough=_COUNTED_TOKENS)
        return EngineRequest(
            method="POST",
            path=CHAT_PATH,
            parsed=asked,
            admitted=False,
            answer=_count_of(Counted(count=tokens)),
            answer_of=_count_of if asks_engine(policy) else None,
        )

    def filters(self, asked: EngineRequest, policy: Policy) -> Sequence[Filter]:  # noqa: ARG002 - a Dialect
        return ()

    def stream_headers(self, headers: Headers) -> Headers:
        return headers

    def whole(self, asked: EngineRequest, status: int, body: bytes, policy: Policy) -> bytes:  # noqa: ARG002 - a Dialect
        return body

    def comment(self, text: str) -> bytes:  # noqa: ARG002 - a Dialect
        return b""


def _count_of(counted: Counted) -> bytes:
    return orjson.dumps({"input_tokens": counted.count})


def _name(asked: EngineRequest, policy: Policy) -> str:
    return policy.model.public or str(asked.parsed.get("model"))


def _envelope(error: ApiError) -> bytes:
    kind = _TYPES.get(error.status)
    if kind is None:
        is_callers = error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        kind = "invalid_request_error" if is_callers else "api_error"
    return orjson.dumps({"type": "error", "error": {"type": kind, "message": error.message}})

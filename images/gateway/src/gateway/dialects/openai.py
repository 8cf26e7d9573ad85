"""OpenAI's API, which is the engine's own: what has no reason to change passes byte for byte."""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson

from gateway.counting import counter_of
from gateway.dialects.openai_fields import CHAT_FIELDS, COMPLETIONS_FIELDS
from gateway.engine_refusals import engine_error
from gateway.engine_request import EngineRequest, prompt_field, read_object
from gateway.errors import Headers, OpenAIVoice, openai_envelope
from gateway.fields import Fields
from gateway.filters import Filter
from gateway.policy import Policy
from gateway.rewrites import Renamed, UsageStripped, renamed
from gateway.think import ThinkSplit, split_whole

CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"
MODELS_PATH = "/v1/models"


@dataclass(frozen=True, slots=True)
class Generation(OpenAIVoice):
    """A route whose requests are the engine's own."""

    path: str
    fields: Fields
    method: str = "POST"

    def read(self, body: bytes, policy: Policy) -> EngineRequest:  # noqa: ARG002 - a Dialect
        given = read_object(body)
        self.fields.check(given)
        parsed = self.fields.used(given)
        return EngineRequest(
            method=self.method,
            path=self.path,
            body=body if parsed is given else orjson.dumps(parsed),
            parsed=parsed,
            stream=parsed.get("stream") is True,
            background=_is_background(parsed),
        )

    def filters(self, asked: EngineRequest, policy: Policy) -> Sequence[Filter]:
        found: list[Filter] = think_filters(asked, policy)
        if policy.model.public is not None:
            found.append(Renamed(policy.model.public))
        if not asked.usage_asked:
            found.append(UsageStripped())
        return found

    def stream_headers(self, headers: Headers) -> Headers:
        return headers

    def whole(self, asked: EngineRequest, status: int, body: bytes, policy: Policy) -> bytes:
        if status >= HTTPStatus.BAD_REQUEST:
            return _as_openai_error(status, body, prompt_field(asked.parsed))
        body = _split(asked, body, policy)
        return body if policy.model.public is None else renamed(body, policy.model.public)

    def comment(self, text: str) -> bytes:
        return f": {text}\n\n".encode()


class Models(OpenAIVoice):
    """The one model under its public name, or what the engine says where the profile gives none."""

    method = "GET"
    path = MODELS_PATH

    def read(self, body: bytes, policy: Policy) -> EngineRequest:  # noqa: ARG002 - a Dialect
        return EngineRequest(
            method=self.method, path=self.path, admitted=False, answer=_models(policy)
        )

    def filters(self, asked: EngineRequest, policy: Policy) -> Sequence[Filter]:  # noqa: ARG002 - a Dialect
        return ()

    def stream_headers(self, headers: Headers) -> Headers:
        return headers

    def whole(self, asked: EngineRequest, status: int, body: bytes, policy: Policy) -> bytes:  # noqa: ARG002 - a Dialect
        return body if status < HTTPStatus.BAD_REQUEST else _as_openai_error(status, body)

    def comment(self, text: str) -> bytes:  # noqa: ARG002 - a Dialect
        return b""


CHAT = Generation(CHAT_PATH, CHAT_FIELDS)
COMPLETIONS = Generation(COMPLETIONS_PATH, COMPLETIONS_FIELDS)


def think_filters(asked: EngineRequest, policy: Policy) -> list[Filter]:
    """For every API whose answers are made of the engine's chat."""
    if not splits_thinking(asked, policy):
        return []
    answers = asked.parsed.get("n") or 1
    return [ThinkSplit(opened=_opened(asked, policy), answers=answers)]


def split_answer(
    asked: EngineRequest, answer: dict[str, Any], policy: Policy
) -> dict[str, Any] | None:
    """The engine's whole answer with its thinking told apart; None where there is none to tell."""
    if not splits_thinking(asked, policy):
        return None
    opened = _opened(asked, policy)
    choices = answer["choices"]
    messages = [split_whole(choice["message"], opened=opened) for choice in choices]
    if all(new is choice["message"] for new, choice in zip(messages, choices, strict=True)):
        return None
    told = [{**choice, "message": new} for new, choice in zip(messages, choices, strict=True)]
    return {**answer, "choices": told}


def _split(asked: EngineRequest, body: bytes, policy: Policy) -> bytes:
    if not splits_thinking(asked, policy) or not (_opened(asked, policy) or _may_think(body)):
        return body
    try:
        told = split_answer(asked, orjson.loads(body), policy)
    except (ValueError, LookupError, TypeError):
        return body
    return body if told is None else orjson.dumps(told)


def _may_think(body: bytes) -> bool:
    """False: there is no `<think>` in it, however its brackets are written."""
    return body.find(b"think") != -1 and (body.find(b"<") != -1 or body.find(b"\\u") != -1)


def splits_thinking(asked: EngineRequest, policy: Policy) -> bool:
    return policy.model.think == "split" and asked.path == CHAT_PATH


def _opened(asked: EngineRequest, policy: Policy) -> bool:
    counter = counter_of(policy)
    return asked.opens_thinking if counter is None else counter.opens_thinking(asked.parsed)


def _models(policy: Policy) -> bytes | None:
    name = policy.model.public
    if name is None:
        return None
    model = {"id": name, "object": "model", "created": 0, "owned_by": "appliance"}
    if policy.model.context_tokens is not None:
        model["max_model_len"] = policy.model.context_tokens
    return orjson.dumps({"object": "list", "data": [model]})


def _as_openai_error(status: int, body: bytes, prompt_is_in: str = "messages") -> bytes:
    """The engine's refusal as it is, where that is OpenAI's shape already."""
    return (
        body
        if _is_openai_error(body)
        else openai_envelope(engine_error(status, body, prompt_is_in))
    )


def _is_openai_error(body: bytes) -> bool:
    """Engines like to put the status, a number, where OpenAI has a word."""
    try:
        error = orjson.loads(body)["error"]
        return (
            isinstance(error["message"], str)
            and isinstance(error["type"], str)
            and isinstance(error.get("code"), str | None)
            and isinstance(error.get("param"), str | None)
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


def _is_background(parsed: Any) -> bool:
    """Open-WebUI's calls for titles, tags and follow-ups: one message of a fixed form, by itself."""
    messages = parsed.get("messages") or []
    if len(messages) != 1:
        return False
    content = messages[0].get("content")
    return isinstance(content, str) and content.startswith("### Task:\n")

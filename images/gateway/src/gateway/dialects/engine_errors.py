"""What dialects make of an engine's answer that is no success, or nothing they understand."""

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.errors import SERVER, ApiError, Refused

UNUSABLE = ApiError(
    status=502,
    code="engine_answer_unusable",
    message="The engine's answer is not of the form that it should have.",
    kind=SERVER,
)


def answer_in(body: bytes) -> dict[str, Any]:
    """The engine's whole answer, with at least one choice; Refused if it is none."""
    try:
        answer = orjson.loads(body)
        first = dict(answer["choices"][0])
    except (ValueError, LookupError, TypeError) as error:
        raise Refused(UNUSABLE) from error
    return {**answer, "choices": [first]}


def chunk_in(event: bytes) -> dict[str, Any] | None:
    """The object in a stream's event; None in [DONE], comments and what is no object."""
    if not event.startswith(b"data:"):
        return None
    try:
        chunk = orjson.loads(event[5:])
    except ValueError:
        return None
    return chunk if isinstance(chunk, dict) else None


def is_done(event: bytes) -> bool:
    return event.startswith(b"data:") and event[5:].strip() == b"[DONE]"


def arguments_in(function: Mapping[str, Any]) -> dict[str, Any]:
    """Of a call. Always an object, since clients take nothing else; a model writes what it likes."""
    try:
        found = orjson.loads(function.get("arguments") or "{}")
    except ValueError:
        # It was cut off, or wrong, in the middle.
        found = function["arguments"]
    if found is None:
        return {}
    return found if isinstance(found, dict) else {"arguments": found}


def choice_in(chunk: dict[str, Any]) -> dict[str, Any] | None:
    """The first answer's part; the translated APIs have no more than one."""
    choices = chunk.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    return dict(choices[0])

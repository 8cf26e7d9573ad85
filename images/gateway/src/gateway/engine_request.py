"""What the engine is asked, whichever API the client spoke."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from gateway.arrival_errors import NOT_JSON, TOO_DEEP
from gateway.errors import Refused

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_SURELY_WRITTEN_DEPTH = 200
_MOST_OBJECTS = 10**6
"""An empty one is two bytes there and seventy here. Text may hold as many braces, if hardly ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    count: int
    opens_thinking: bool = False
    """The prompt itself ends in `<think>`, so that the answer begins inside."""
    tokens: list[int] | None = None
    """None where the engine says only how many there are."""


class EngineRequest(NamedTuple):
    """`body` is the client's own bytes until something has to be changed.

    `parsed` is the same request, read once; `admitted` is False for what costs the engine nothing.
    `answer` is set where the gateway knows it: then the engine is not asked at all.
    """

    method: str
    path: str
    body: bytes | None = None
    parsed: Mapping[str, Any] = _NOTHING
    admitted: bool = True
    stream: bool = False
    background: bool = False
    prompt_tokens_estimate: int = 0
    max_tokens_cap: int = 0
    prefix: tuple[bytes, ...] = ()
    """One digest a message, each over all before it: what two turns of a talk have in common."""
    usage_asked: bool = True
    """False: the stream's usage event is the gateway's own wish and never reaches the client."""
    names: Mapping[str, str] = _NOTHING
    """What the caller's API calls the fields that a refusal may name."""
    answer: bytes | None = None
    answer_of: Callable[[Counted], bytes] | None = None
    """Makes the answer of what is counted in `parsed`; `answer` is for where nobody can count."""
    opens_thinking: bool = False
    """Said by an engine that was asked: its prompt ends in `<think>`."""
    read_s: float = 0.0
    """By the monotonic clock; only of APIs that tell how long an answer took."""
    assembled: bool = False
    """Its client wants the answer whole, and the gateway makes it of a stream of the engine's."""

    @property
    def streams(self) -> bool:
        """The engine is asked for a stream, whoever wants it."""
        return self.stream or self.assembled


def prompt_field(parsed: Mapping[str, Any]) -> str:
    return "prompt" if "prompt" in parsed else "messages"


def read_object(body: bytes) -> Mapping[str, Any]:
    """The one parse of a request body."""
    objects = body.count(b"[") + body.count(b"{")
    if objects > _MOST_OBJECTS:
        raise Refused(TOO_DEEP)
    try:
        parsed = orjson.loads(body)
    except ValueError as error:
        raise Refused(NOT_JSON) from error
    if not isinstance(parsed, dict):
        raise Refused(NOT_JSON)
    if objects > _SURELY_WRITTEN_DEPTH:
        _refuse_deep(parsed)
    return parsed


def _refuse_deep(parsed: Mapping[str, Any]) -> None:
    """Orjson reads deeper than it writes, and what is asked of the engine may have to be written."""
    try:
        # A translation into the engine's API may lay some levels around it.
        orjson.dumps([[[[[[[[parsed]]]]]]]])
    except TypeError as error:
        raise Refused(TOO_DEEP) from error

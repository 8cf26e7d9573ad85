"""Who asks: the identity that the key check puts into a request's scope."""

from dataclasses import dataclass, field
from typing import Literal

from starlette.types import Scope

KeyClass = Literal["interactive", "batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one key may use. None is no limit of its own: the policy's limits still hold."""

    running: int | None = None
    queued: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """`key_id` is what logs, metrics and the ledger know a key by; it is no secret."""

    key_id: str
    name: str
    key_class: KeyClass = "interactive"
    limits: Limits = Limits()
    digest: bytes = field(default=b"", repr=False, compare=False)
    """SHA-256 of the key that was offered: an id whose key was changed is another caller."""


def caller_of(scope: Scope) -> Caller:
    """The caller of a request that has passed the key check."""
    caller = scope["caller"]
    if not isinstance(caller, Caller):
        raise TypeError(caller)
    return caller

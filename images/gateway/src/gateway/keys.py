"""The accepted keys, held as SHA-256 digests, so that every comparison is of equal length."""

import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from gateway.caller import Caller, KeyClass, Limits
from gateway.errors import KEY_EXPIRED, KEY_REVOKED, NO_KEY, ApiError, Refused
from gateway.reloaded import Reloaded

LOCAL = Caller(key_id="local", name="local")
"""Whoever holds the stack's one generated key."""
WEBUI = Caller(key_id="webui", name="the chat page")
"""All who chat on the stack's own page: it has one key for them together."""


class Standing(Protocol):
    """Whether who was let in may stay."""

    def objection(self, caller: Caller) -> ApiError | None:
        """Why the key that let this caller in would not do so now; None where it would."""

    def refresh(self) -> None:
        """Has a change of the keys be known now, and not only when the next one is offered."""


class KeyRing(Standing, Protocol):
    def admit(self, offered: bytes) -> Caller:
        """The caller that holds the key `offered`; Refused where there is none."""


class LimitsRecord(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    running: int | None = Field(default=None, ge=1)
    queued: int | None = Field(default=None, ge=1)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_day: int | None = Field(default=None, ge=1)


class KeyRecord(BaseModel):
    """One key of keys.json. A revoked key's record is gone from the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")
    name: str = Field(min_length=1, max_length=64)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    key_class: KeyClass = Field(default="interactive", alias="class")
    limits: LimitsRecord = LimitsRecord()
    created_at_s: int = 0
    expires_at_s: int | None = None


class KeysFile(BaseModel):
    # What is wrong in it may be a key: errors are logged.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    version: Literal[1] = 1
    keys: tuple[KeyRecord, ...] = ()

    @field_validator("keys")
    @classmethod
    def _each_key_is_one(cls, keys: tuple[KeyRecord, ...]) -> tuple[KeyRecord, ...]:
        """Books, limits and places in the line go by the id: two keys must not share one."""
        taken = _repeated([LOCAL.key_id, WEBUI.key_id, *(key.id for key in keys)])
        if taken:
            message = f"the id {taken[0]!r} is there twice, or one of the stack's own"
            raise ValueError(message)
        if _repeated([key.sha256 for key in keys]):
            message = "one key is there under two ids"
            raise ValueError(message)
        return keys


@dataclass(frozen=True, slots=True)
class _Known:
    caller: Caller
    expires_at_s: int | None


class FileKeys:
    """The stack's own keys, and those of keys.json as the file stands at the moment of asking."""

    def __init__(
        self,
        own: Iterable[tuple[Caller, SecretStr]],
        file: Reloaded[KeysFile],
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._own = tuple(
            _Known(replace(caller, digest=_digest(key.get_secret_value().encode("ascii"))), None)
            for caller, key in own
        )
        self._known = self._own
        self._now_s = now_s
        self._file = file
        file.follow(self._take)

    def admit(self, offered: bytes) -> Caller:
        self._file.current()
        digest = _digest(offered)
        found = None
        # No early end: the time tells neither whether a key is known nor which one it is.
        for known in self._known:
            if secrets.compare_digest(known.caller.digest, digest):
                found = known
        if found is None:
            raise Refused(NO_KEY)
        if self._is_over(found):
            raise Refused(KEY_EXPIRED)
        return found.caller

    def objection(self, caller: Caller) -> ApiError | None:
        known = self._by_id.get(caller.key_id)
        if known is None or known.caller.digest != caller.digest:
            return KEY_REVOKED
        return KEY_EXPIRED if self._is_over(known) else None

    def refresh(self) -> None:
        self._file.current()

    def _is_over(self, known: _Known) -> bool:
        return known.expires_at_s is not None and known.expires_at_s <= self._now_s()

    def _take(self, file: KeysFile) -> None:
        self._known = (*self._own, *(_known(record) for record in file.keys))
        self._by_id = {known.caller.key_id: known for known in self._known}


def _known(record: KeyRecord) -> _Known:
    caller = Caller(
        key_id=record.id,
        name=record.name,
        key_class=record.key_class,
        limits=Limits(**record.limits.model_dump()),
        digest=bytes.fromhex(record.sha256),
    )
    return _Known(caller, record.expires_at_s)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]

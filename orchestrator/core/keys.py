"""The keys of the API as values: how one is made, found, changed. `gateway` reads them."""

import base64
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.core.errors import BadConfiguration

KeyClass = Literal["interactive", "batch"]

OWN_IDS: Mapping[str, str] = {"local": "the stack's own", "webui": "the chat page"}
"""Keys that are secret files, and no records: nobody revokes or limits them here."""


class KeyLimits(BaseModel):
    """What one key may use. None: no limit of its own, the profile's still hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    running: int | None = Field(default=None, ge=1)
    queued: int | None = Field(default=None, ge=1)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_day: int | None = Field(default=None, ge=1)


class Key(BaseModel):
    """One record of keys.json. The key itself is nowhere: only its digest."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")
    name: str = Field(min_length=1, max_length=64)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", repr=False)
    key_class: KeyClass = Field(default="interactive", alias="class")
    limits: KeyLimits = KeyLimits()
    created_at_s: int = 0
    expires_at_s: int | None = None


class Keys(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    keys: tuple[Key, ...] = ()


class RevokedKey(BaseModel):
    """What is kept of a key that was taken back: whose the use is that the books have under its id."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    name: str
    revoked_at_s: int


class RevokedKeys(BaseModel):
    """revoked.json. A file of its own: the gateway takes whatever stands in keys.json for a key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    keys: tuple[RevokedKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUsage:
    """What the books say of one key id; today since 00:00 UTC."""

    requests: int = 0
    tokens: int = 0
    tokens_today: int = 0
    last_at_s: int | None = None


@dataclass(frozen=True, slots=True)
class Secret:
    """A key that was just made, to be shown once."""

    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode("ascii")).hexdigest()

    def __repr__(self) -> str:
        return "Secret(...)"


SECRET_BYTES = 32
ID_BYTES = 16


def minted(random: bytes) -> Secret:
    """`random`: SECRET_BYTES from the system's own source."""
    return Secret("sk-" + base64.urlsafe_b64encode(random).rstrip(b"=").decode("ascii"))


def unused_id(random: bytes, taken: Collection[str]) -> str:
    """Short, as people read it aloud. An id in the books is taken: its usage is somebody else's."""
    digits = random.hex()
    return next(
        found for size in range(4, len(digits) + 1) if (found := f"k-{digits[:size]}") not in taken
    )


MOST_NAME = 64


def fit_name(text: str) -> str:
    """A name that a list can show in one line."""
    name = text.strip()
    if not 1 <= len(name) <= MOST_NAME or not name.isprintable():
        raise BadConfiguration(
            f"{text!r} can't name a key",
            why=f"a name has 1 to {MOST_NAME} characters, on one line",
            next_step="say for whom or what it is, as in 'Lab robot'",
        )
    return name


def with_key(keys: Keys, key: Key) -> Keys:
    if any(other.name == key.name for other in keys.keys):
        raise BadConfiguration(
            f"there is a key named {key.name!r} already",
            why="keys are told apart by their names",
            next_step="choose another name, or revoke that one",
        )
    return Keys(keys=(*keys.keys, key))


def without_key(keys: Keys, key: Key) -> Keys:
    return Keys(keys=tuple(other for other in keys.keys if other.id != key.id))


def with_revoked(revoked: RevokedKeys, key: Key, now_s: int) -> RevokedKeys:
    """Also where a revocation that was cut off is made again: each id is there once."""
    others = (other for other in revoked.keys if other.id != key.id)
    return RevokedKeys(keys=(*others, RevokedKey(id=key.id, name=key.name, revoked_at_s=now_s)))


def with_changed_key(
    keys: Keys, key: Key, limits: Mapping[str, int | None], changes: Mapping[str, object]
) -> Keys:
    """`limits`: those that change. `changes`: other fields of the record."""
    changed = key.model_copy(
        update={"limits": key.limits.model_copy(update=dict(limits)), **changes}
    )
    return Keys(keys=tuple(changed if other.id == key.id else other for other in keys.keys))


def find_key(keys: Keys, named: str) -> Key:
    """By its id or its name."""
    found = [key for key in keys.keys if named in {key.id, key.name}]
    if len(found) == 1:
        return found[0]
    if named in OWN_IDS:
        raise BadConfiguration(
            f"{named} is one of the stack's own keys",
            why=f"it is {OWN_IDS[named]}, and a file in the secrets folder",
            next_step="a new one: see docs/operations.md, under A new API key",
        )
    raise BadConfiguration(
        f"there is no key {named!r}" if not found else f"{named!r} is more than one key",
        why=f"keys: {', '.join(f'{key.id} ({key.name})' for key in keys.keys) or 'none'}",
        next_step="python3 -m orchestrator key list",
    )

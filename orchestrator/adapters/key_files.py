"""What the gateway reads while it runs, keys.json and policy.json, and the books that it keeps."""

import fcntl
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.core.errors import BadConfiguration
from orchestrator.core.keys import Keys, KeyUsage, RevokedKeys

KEYS = "keys.json"
REVOKED = "revoked.json"  # what the gateway does not read
POLICY = "policy.json"
BOOKS = "usage.sqlite"

_TOTALS = """
SELECT key_id, count(*), sum(prompt_tokens + completion_tokens),
       sum(CASE WHEN at_s >= ? THEN prompt_tokens + completion_tokens ELSE 0 END), max(at_s)
FROM usage GROUP BY key_id
"""
_BUSY_S = 5.0
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """By key id. `problem`: why nothing is known, where that is not because nothing was used."""

    usage: Mapping[str, KeyUsage] = field(default_factory=dict)
    problem: str = ""


def this_user() -> tuple[int, int]:
    return os.geteuid(), os.getegid()


def random_bytes(count: int) -> bytes:
    return secrets.token_bytes(count)


def read_keys(control: Path) -> Keys:
    return _read(control / KEYS, Keys)


def read_revoked(control: Path) -> RevokedKeys:
    return _read(control / REVOKED, RevokedKeys)


def _read(path: Path, kind: type[M]) -> M:
    """An absent file holds none."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return kind()
    except (OSError, ValidationError) as error:
        # Not the error's own text: it would quote what stands in the file.
        why = error.strerror if isinstance(error, OSError) else error.errors()[0]["msg"]
        raise BadConfiguration(
            "the keys can't be read",
            why=f"{path}: {why}",
            next_step=f"correct {path}, or run as its owner",
        ) from error


@contextmanager
def changing_keys(control: Path, owner: tuple[int, int]) -> Iterator[None]:
    """One change at a time, so that none is lost; the kernel ends the lock with its process."""
    make_folder(control, owner)
    descriptor = os.open(control, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_keys(control: Path, keys: Keys, owner: tuple[int, int]) -> None:
    _replace(control / KEYS, keys.model_dump(mode="json", by_alias=True), owner)


def write_revoked(control: Path, revoked: RevokedKeys, owner: tuple[int, int]) -> None:
    _replace(control / REVOKED, revoked.model_dump(mode="json"), owner)


def write_policy(control: Path, policy: Mapping[str, Any], owner: tuple[int, int]) -> None:
    make_folder(control, owner)
    _replace(control / POLICY, policy, owner)


def make_folder(folder: Path, owner: tuple[int, int]) -> None:
    """Private to `owner`, uid:gid: who can open the gateway's socket in it may use it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if (found.st_uid, found.st_gid) != owner and os.geteuid() == 0:
            os.chown(folder, *owner)
    except OSError as error:
        raise BadConfiguration(
            f"the folder {folder} can't be made",
            why=str(error),
            next_step=f"sudo install -d -m 700 -o {owner[0]} -g {owner[1]} {folder}",
        ) from error


def read_books(folder: Path, today_s: int) -> Books:
    """`today_s`: when today began. Reads beside the gateway, which goes on writing."""
    path = folder / BOOKS
    try:
        # An absent file tells from a folder that may not be looked into.
        path.stat()
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_S)) as database:
            rows = database.execute(_TOTALS, (today_s,)).fetchall()
    except FileNotFoundError:
        return Books()
    except (OSError, sqlite3.Error) as error:
        return Books(problem=f"{path}: {error}")
    return Books(
        usage={
            key_id: KeyUsage(requests=count, tokens=tokens, tokens_today=today, last_at_s=last)
            for key_id, count, tokens, today, last in rows
        }
    )


def _replace(path: Path, content: Mapping[str, Any], owner: tuple[int, int]) -> None:
    """By rename: the gateway sees the old file or the new one, never a half."""
    part = path.with_suffix(".part")
    try:
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            if os.geteuid() == 0:
                os.fchown(descriptor, *owner)
            file.write(json.dumps(content, ensure_ascii=False, indent=2) + "\n")
            file.flush()
            os.fsync(descriptor)
        part.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise BadConfiguration(
            f"{path} can't be written",
            why=str(error),
            next_step=f"run as the owner of {path.parent}, and see that the disk is not full: df -h",
        ) from error

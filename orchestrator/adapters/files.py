"""Profiles, locks, the env file, the journal and the run lock, on disk."""

import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from orchestrator.core.errors import AlreadyRunning, BadConfiguration
from orchestrator.core.events import ActionProgressed, Event, GateChecked, as_record
from orchestrator.core.gates import GateResult
from orchestrator.core.profile import Profile
from wire import Lock
from wire.order import Order


def is_folder(path: Path) -> bool:
    return path.is_dir()


def read_lock(configs: Path, profile: Profile) -> Lock:
    path = configs / "locks" / profile.lock_name
    try:
        return Lock.model_validate_json(path.read_bytes())
    except (ValidationError, OSError) as error:
        raise _unusable(path, error) from error


def find_lock(configs: Path, profile: Profile) -> Lock | None:
    """The profile's lock; None where none was made yet."""
    if not (configs / "locks" / profile.lock_name).exists():
        return None
    return read_lock(configs, profile)


def write_lock(configs: Path, profile: Profile, lock: Lock) -> Path:
    path = configs / "locks" / profile.lock_name
    try:
        path.parent.mkdir(exist_ok=True)
        _replace(path, f"{lock.model_dump_json(indent=2, exclude_none=True)}\n", mode=0o644)
    except OSError as error:
        raise BadConfiguration(
            f"the lock {path} can't be written",
            why=str(error),
            next_step=f"make {path.parent} yours, or choose another folder: --configs-dir FOLDER",
        ) from error
    return path


def read_order(path: Path) -> Order | None:
    """What the weights job was last told; None where that can't be read."""
    try:
        return Order.model_validate_json(path.read_bytes())
    except (ValidationError, OSError):
        return None


def write_order(path: Path, order: Order, owner: tuple[int, int]) -> None:
    """Private to `owner`, uid:gid: it may hold a proxy's password."""
    _replace(path, f"{order.model_dump_json(indent=2)}\n", mode=0o600, owner=owner)


def _replace(path: Path, text: str, mode: int, owner: tuple[int, int] | None = None) -> None:
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)  # a umask may have taken some of it away
        if owner is not None and os.geteuid() == 0:
            os.fchown(descriptor, *owner)
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_rules(path: Path, text: str) -> None:
    """For a container that reads it: it holds no secret."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, text, mode=0o644)


def write_env_file(path: Path, text: str) -> None:
    _replace(path, text, mode=0o644)


def read_env_file(path: Path) -> str:
    """The last run's env file; empty where there was none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def give_folder(folder: Path, owner: tuple[int, int]) -> None:
    """Make a folder that containers write to, and that belongs to `owner`, uid:gid."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = folder.stat()
        if (found.st_uid, found.st_gid) != owner and os.geteuid() == 0:
            os.chown(folder, *owner)
    except OSError as error:
        raise BadConfiguration(
            f"the folder {folder} can't be made",
            why=str(error),
            next_step=f"sudo install -d -o {owner[0]} -g {owner[1]} {folder}",
        ) from error


def let_containers_read(path: Path) -> None:
    """A file or a folder of this checkout: under a umask of 027 root's clone is root's alone.

    For whoever is not root the containers run as the same user. Where it can't be done, whoever
    reads it says so.
    """
    if os.geteuid() != 0:
        return
    for found in (path, *path.rglob("*")):
        with suppress(OSError):
            mode = stat.S_IMODE(found.stat().st_mode)
            wanted = mode | (0o555 if found.is_dir() else 0o444)
            if mode != wanted:
                found.chmod(wanted)


class JournalFile:
    """`journal.jsonl`: one record a line, stamped as it is written, never rewritten."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_answer: tuple[str, GateResult] | None = None

    def append(self, record: Mapping[str, Any]) -> None:
        stamped = {"at": _now(), **record}
        line = json.dumps(stamped, ensure_ascii=False) + "\n"
        with self._path.open("ab+") as file:
            if file.tell() and not self._ends_a_line(file):
                line = "\n" + line  # a power cut left half a line: it must not spoil this one
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    @staticmethod
    def _ends_a_line(file: BinaryIO) -> bool:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"

    def record(self, event: Event) -> None:
        """Keep an event.

        Of many looks with the same answer the first is enough; output lines have a log of their
        own.
        """
        if isinstance(event, ActionProgressed):
            return
        if isinstance(event, GateChecked):
            answer = (event.step, event.result)
            if answer == self._last_answer:
                return
            self._last_answer = answer
        self.append(as_record(event))

    def records(self) -> Iterator[dict[str, Any]]:
        """Every record. A line that a power cut left half-written is passed over."""
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue


@contextmanager
def run_lock(state: Path, command: str) -> Iterator[None]:
    """Hold the one lock of this state folder. Raises AlreadyRunning, naming the holder.

    The kernel drops a flock with its process, so there is no stale lock to clear.
    """
    with (state / "lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise AlreadyRunning(
                "another run is under way",
                why=file.read().strip() or "it has not said what it is",
                next_step="wait for it, or watch it: python3 -m orchestrator status",
            ) from error
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()}, python3 -m orchestrator {command}, since {_now()}")
        file.flush()
        yield


def _unusable(path: Path, error: Exception) -> BadConfiguration:
    return BadConfiguration(
        f"{path.name} can't be used", why=" ".join(str(error).split()), next_step=f"correct {path}"
    )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")

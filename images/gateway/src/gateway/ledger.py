"""Who used how much, kept on disk. The folder is mounted; readers open the file beside us.

A thread writes once a second, so that a disk that is slow, full or locked costs no request anything:
what it does not take is kept in memory, up to a bound, and offered again. A kill may cost the books
of the last second, a stop none.
"""

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from gateway.reloaded import FileUnusableError
from gateway.usage import Usage

_log = logging.getLogger(__name__)

SCHEMA = """
CREATE TABLE IF NOT EXISTS usage (
    at_s INTEGER NOT NULL,
    key_id TEXT NOT NULL,
    model TEXT NOT NULL,
    outcome TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    waited_ms INTEGER NOT NULL,
    held_ms INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS usage_by_key ON usage (key_id, at_s);
"""
_INSERT = "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

KEPT_S = 400 * 86_400
"""Longer than a year, so that this month can be held against the same one a year ago."""
MOST_UNWRITTEN = 10_000
RETRY_S = 5.0
WRITES_EVERY_S = 1.0
_READ_WITHIN_S = 1.0
_LAST_WORDS_S = 2.0
_DAY_S = 86_400


class Entry(NamedTuple):
    """One request that held a permit. `at_s` is wall time at its end."""

    at_s: float
    key_id: str
    model: str
    outcome: str
    usage: Usage
    waited_s: float
    held_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Ledger(Protocol):
    def book(self, entry: Entry) -> None: ...

    def spent(self, key_id: str, since_s: float) -> Totals: ...

    def unwritten(self) -> int: ...

    def close(self) -> None: ...


def open_ledger(path: Path | None) -> Ledger:
    """`path` None: nothing is kept."""
    if path is None:
        return NoLedger()
    if not path.parent.is_dir():
        message = f"{path}: there is no such folder"
        raise FileUnusableError(message)
    return SqliteLedger(path)


class NoLedger:
    def book(self, entry: Entry) -> None:
        pass

    def spent(self, key_id: str, since_s: float) -> Totals:  # noqa: ARG002 - nobody has spent anything
        return Totals()

    def unwritten(self) -> int:
        return 0

    def close(self) -> None:
        pass


class SqliteLedger:
    def __init__(
        self, path: Path, *, every_s: float = WRITES_EVERY_S, retry_s: float = RETRY_S
    ) -> None:
        self._path = path
        self._every_s = every_s
        self._retry_s = retry_s
        self._entries: deque[Entry] = deque(maxlen=MOST_UNWRITTEN)
        self._access = threading.Lock()
        self._closing = threading.Event()
        # A disk that hangs must not keep the process from its end.
        self._writer = threading.Thread(target=self._write_on, name="ledger", daemon=True)
        self._writer.start()

    def book(self, entry: Entry) -> None:
        with self._access:
            self._entries.append(entry)

    def spent(self, key_id: str, since_s: float) -> Totals:
        """What is on disk; nothing where that can't be read: a key then has its day anew."""
        if not self._path.exists():
            return Totals()
        asked = (
            "SELECT count(*), ifnull(sum(prompt_tokens), 0), ifnull(sum(completion_tokens), 0)"
            " FROM usage WHERE key_id = ? AND at_s >= ?"
        )
        try:
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=_READ_WITHIN_S)) as database:
                found = database.execute(asked, (key_id, int(since_s))).fetchone()
        except sqlite3.Error as error:
            _log.warning("the books can't be read: %s", error)
            return Totals()
        requests, prompt, completion = found
        return Totals(requests=requests, prompt_tokens=prompt, completion_tokens=completion)

    def unwritten(self) -> int:
        return len(self._entries)

    def close(self) -> None:
        """Returns once all is written, or the disk does not take it."""
        self._closing.set()
        self._writer.join(_LAST_WORDS_S)
        if self._entries:
            _log.error("%d entries of the books are lost", len(self._entries))

    def _write_on(self) -> None:
        while not self._has_written_all():
            if self._closing.wait(self._retry_s):
                return

    def _has_written_all(self) -> bool:
        """Returns when the ledger closes, or the disk does not take it."""
        try:
            with closing(_opened(self._path)) as database:
                self._write_entries(database)
        except sqlite3.Error as error:
            _log.warning("the books wait to be written: %s", error)
            return False
        return True

    def _write_entries(self, database: sqlite3.Connection) -> None:
        opened = _identity(self._path)
        forgets_at_s = 0.0
        closing = False
        while not closing:
            if time.time() >= forgets_at_s:
                forgets_at_s = time.time() + _DAY_S
                database.execute("DELETE FROM usage WHERE at_s < ?", (time.time() - KEPT_S,))
            closing = self._closing.wait(self._every_s)
            if self._entries:
                if _identity(self._path) != opened:
                    # Moved away, deleted or replaced: SQLite would write on into what was there.
                    message = "another file is in their place, or none"
                    raise sqlite3.OperationalError(message)
                self._write(database)

    def _write(self, database: sqlite3.Connection) -> None:
        with self._access:
            entries = tuple(self._entries)
        _insert(database, entries)
        with self._access:
            # From the left, where nobody else takes; a full queue may have let some go itself.
            written = set(map(id, entries))
            while self._entries and id(self._entries[0]) in written:
                self._entries.popleft()


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        # No fsync a second: a power cut may cost more of the last entries than a crash.
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript(SCHEMA)
    except sqlite3.Error:
        database.close()
        raise
    return database


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _insert(database: sqlite3.Connection, entries: Sequence[Entry]) -> None:
    database.execute("BEGIN IMMEDIATE")
    try:
        database.executemany(_INSERT, map(_row, entries))
        database.execute("COMMIT")
    except sqlite3.Error:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _row(entry: Entry) -> tuple[int | str, ...]:
    usage = entry.usage
    return (
        int(entry.at_s),
        entry.key_id,
        entry.model,
        entry.outcome,
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_tokens,
        int(usage.estimated),
        round(entry.waited_s * 1000),
        round(entry.held_s * 1000),
    )

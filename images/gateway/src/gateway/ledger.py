"""Who used how much, kept on disk. The folder is a volume; readers open the file beside us."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gateway.usage import Usage

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
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

    def close(self) -> None: ...


class SqliteLedger:
    """`path` None keeps the books in memory, for as long as the process lives."""

    def __init__(self, path: Path | None) -> None:
        self._database = sqlite3.connect(":memory:" if path is None else path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        # No fsync a request: a power cut may cost the last entries, a crash none.
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(SCHEMA)

    def book(self, entry: Entry) -> None:
        usage = entry.usage
        self._database.execute(
            "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
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
            ),
        )

    def spent(self, key_id: str, since_s: float) -> Totals:
        requests, prompt, completion = self._database.execute(
            "SELECT count(*), ifnull(sum(prompt_tokens), 0), ifnull(sum(completion_tokens), 0)"
            " FROM usage WHERE key_id = ? AND at_s >= ?",
            (key_id, int(since_s)),
        ).fetchone()
        return Totals(requests=requests, prompt_tokens=prompt, completion_tokens=completion)

    def close(self) -> None:
        self._database.close()

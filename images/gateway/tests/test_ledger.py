"""The books: what a request used is written, whatever the disk does meanwhile, and old pages go."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.ledger import KEPT_S, MOST_UNWRITTEN, Entry, SqliteLedger, open_ledger
from gateway.reloaded import FileUnusableError
from gateway.usage import Usage
from images.gateway.tests.support import eventually

RETRY_S = 0.02


def an_entry(*, at_s: float = 1000.0, key_id: str = "k1", tokens: int = 7) -> Entry:
    return Entry(
        at_s=at_s,
        key_id=key_id,
        model="m",
        outcome="finished",
        usage=Usage(prompt_tokens=tokens, completion_tokens=2 * tokens, estimated=False),
        waited_s=0.5,
        held_s=1.5,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.sqlite"


@pytest.fixture
def ledger(path: Path) -> Iterator[SqliteLedger]:
    opened = SqliteLedger(path, retry_s=RETRY_S)
    yield opened
    opened.close()


def test_what_is_booked_is_found_by_key_and_time(ledger: SqliteLedger) -> None:
    for at_s in (999, 1000, 1001):
        ledger.book(an_entry(at_s=at_s))
    ledger.book(an_entry(key_id="k2"))
    assert eventually(lambda: ledger.unwritten() == 0)
    found = ledger.spent("k1", 1000)
    assert (found.requests, found.prompt_tokens, found.completion_tokens) == (2, 14, 28)
    assert ledger.spent("nobody", 0).requests == 0


def test_what_was_booked_last_is_written_before_the_end(path: Path) -> None:
    ledger = SqliteLedger(path)
    for _ in range(500):
        ledger.book(an_entry())
    ledger.close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM usage").fetchone() == (500,)


def test_a_locked_file_keeps_nobody_waiting_and_loses_nothing(
    path: Path, ledger: SqliteLedger
) -> None:
    ledger.book(an_entry())
    assert eventually(lambda: ledger.unwritten() == 0)
    with closing(sqlite3.connect(path, isolation_level=None)) as somebody:
        somebody.execute("BEGIN EXCLUSIVE")
        for _ in range(3):
            ledger.book(an_entry())
        assert ledger.unwritten() == 3
        assert ledger.spent("k1", 0).requests == 1
        somebody.execute("COMMIT")
    assert eventually(lambda: ledger.unwritten() == 0)
    assert ledger.spent("k1", 0).requests == 4


def test_books_that_cant_be_opened_are_opened_once_they_can(path: Path) -> None:
    path.write_text("this is no database, and longer than the header of one" * 10)
    ledger = SqliteLedger(path, retry_s=RETRY_S)
    for _ in range(MOST_UNWRITTEN + 5):
        ledger.book(an_entry())
    assert ledger.unwritten() == MOST_UNWRITTEN
    assert ledger.spent("k1", 0).requests == 0
    path.unlink()
    assert eventually(lambda: ledger.unwritten() == 0)
    assert ledger.spent("k1", 0).requests == MOST_UNWRITTEN
    ledger.close()


def test_books_that_were_taken_away_are_begun_anew(path: Path) -> None:
    """As by somebody who needs room on the disk, or puts a copy back."""
    ledger = SqliteLedger(path, every_s=RETRY_S, retry_s=RETRY_S)
    ledger.book(an_entry())
    assert eventually(lambda: ledger.unwritten() == 0)
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    ledger.book(an_entry())
    assert eventually(lambda: ledger.unwritten() == 0)
    assert ledger.spent("k1", 0).requests == 1
    ledger.close()


def test_pages_older_than_what_is_kept_are_gone_after_a_start(path: Path) -> None:
    now_s = time.time()
    ledger = SqliteLedger(path)
    ledger.book(an_entry(at_s=now_s - KEPT_S - 60))
    ledger.book(an_entry(at_s=now_s - KEPT_S + 3600))
    ledger.close()
    again = SqliteLedger(path)
    again.book(an_entry(at_s=now_s))
    assert eventually(lambda: again.unwritten() == 0)
    assert again.spent("k1", 0).requests == 2
    again.close()


def test_a_folder_that_is_not_there_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileUnusableError, match="no such folder"):
        open_ledger(tmp_path / "nowhere" / "usage.sqlite")

"""Keys of the API: made once, limited, revoked, listed with what they used; never kept themselves."""

import hashlib
import json
import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.keys import KeysFile
from orchestrator import keying
from orchestrator.adapters import key_files
from orchestrator.cli import main
from orchestrator.commands import Typed
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.key_words import as_rows, limits_in_words, read_expiry, read_limit
from orchestrator.core.keys import (
    Key,
    KeyLimits,
    Keys,
    KeyUsage,
    RevokedKey,
    find_key,
    minted,
    unused_id,
)

NOON_S = 1_790_000_000 // 86_400 * 86_400 + 43_200  # a day in September 2026
DAY_S = 86_400


# --- what people type


@pytest.mark.parametrize(
    ("text", "number"),
    [("60", 60), ("20k", 20_000), ("20K", 20_000), (" 1M ", 10**6), ("none", None)],
)
def test_a_limit_is_read_as_people_write_it(text: str, number: int | None) -> None:
    assert read_limit(text) == number


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5k", "20 k", "1g", "many", "٣", "9" * 5000])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(BadConfiguration, match="is no limit"):
        read_limit(text)


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("12h", NOON_S + 12 * 3600),
        ("30d", NOON_S + 30 * DAY_S),
        ("2W", NOON_S + 14 * DAY_S),
        ("2027-01-31", 1_801_353_600),
        ("never", None),
    ],
)
def test_an_end_is_a_span_from_now_or_a_day(text: str, at_s: int | None) -> None:
    assert read_expiry(text, NOON_S) == at_s


@pytest.mark.parametrize(
    "text",
    ["", "0d", "30", "30m", "2020-01-01", "2027-02-30", "31.1.2027", "9999999w", f"{'9' * 5000}d"],
)
def test_what_is_no_end_to_come_is_refused(text: str) -> None:
    with pytest.raises(BadConfiguration, match="no time for a key to end"):
        read_expiry(text, NOON_S)


# --- keys as values


def test_a_key_is_256_random_bits_in_letters_that_any_header_takes() -> None:
    secret = minted(bytes(range(224, 256)))
    assert secret.text == "sk-4OHi4-Tl5ufo6err7O3u7_Dx8vP09fb3-Pn6-_z9_v8"
    assert secret.sha256 == hashlib.sha256(secret.text.encode()).hexdigest()
    assert secret.text not in repr(secret)


def test_an_id_is_short_and_nobodys_before() -> None:
    random = bytes.fromhex("7f3a91c2" * 4)
    assert unused_id(random, ()) == "k-7f3a"
    assert unused_id(random, {"k-7f3a", "k-7f3a9"}) == "k-7f3a91"


def a_key(**fields: Any) -> Key:
    return Key.model_validate({"id": "k-1", "name": "Robot", "sha256": "0" * 64} | fields)


def test_a_key_goes_by_its_id_and_its_name() -> None:
    keys = Keys(keys=(a_key(), a_key(id="k-2", name="Other")))
    assert find_key(keys, "k-2") == find_key(keys, "Other") == keys.keys[1]
    with pytest.raises(BadConfiguration, match="no key 'Third'"):
        find_key(keys, "Third")
    with pytest.raises(BadConfiguration, match="one of the stack's own"):
        find_key(keys, "webui")


def test_limits_are_said_in_a_line() -> None:
    limits = KeyLimits(running=1, requests_per_minute=60, tokens_per_minute=20_000)
    assert limits_in_words(limits) == "1 at once, 60 requests/min, 20k tokens/min"
    assert limits_in_words(KeyLimits(tokens_per_day=1_500_000)) == "1500k tokens/day"
    assert limits_in_words(KeyLimits()) == ""


def test_the_list_has_the_stacks_own_the_given_and_the_revoked() -> None:
    used = KeyUsage(requests=3, tokens=900, tokens_today=30, last_at_s=NOON_S)
    keys = (a_key(expires_at_s=NOON_S), a_key(id="k-2", expires_at_s=NOON_S + DAY_S))
    revoked = (
        RevokedKey(id="k-3", name="Old robot", revoked_at_s=NOON_S),
        RevokedKey(id="k-4", name="Never used", revoked_at_s=NOON_S),
    )
    books = {"k-1": used, "k-0": used, "k-3": used, "local": used}
    rows = list(as_rows(keys, revoked, books, NOON_S))
    assert [row[0] for row in rows] == ["local", "webui", "k-1", "k-2", "k-0", "k-3"]
    said = "3 requests, 900 tokens, 30 of them today, last 2026-09-21"
    assert [row[-1] for row in rows] == [said, "not used", said, "not used", said, said]
    assert rows[2][4] == "ended 2026-09-21"
    assert rows[3][4] == "ends 2026-09-22"
    once = {"local": KeyUsage(requests=1, tokens=9, tokens_today=0, last_at_s=NOON_S)}
    assert next(as_rows((), (), once, NOON_S))[-1].startswith("1 request, 9 tokens, ")
    # Revoked before names were kept, and since.
    assert rows[4][1:5] == ("", "", "", "revoked")
    assert rows[5][1:5] == ("Old robot", "", "", "revoked 2026-09-21")


# --- the commands, on files


@pytest.fixture
def typed(tmp_path: Path) -> Typed:
    return Typed(root=tmp_path, as_json=True)


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[[], Any]:
    return lambda: json.loads(capsys.readouterr().out)


def the_file(typed: Typed) -> Path:
    return typed.root / ".state" / "control" / "keys.json"


def create(typed: Typed, name: str = "Robot", **fields: Any) -> int:
    given: dict[str, Any] = {"key_class": "interactive", "limits": {}, "expires": None} | fields
    return keying.create(typed, name, **given)


def test_a_new_key_is_one_that_the_gateway_takes_and_is_kept_nowhere(
    typed: Typed, told: Callable[[], Any]
) -> None:
    limits = {"tokens_per_minute": "20k", "running": "1"}
    assert create(typed, key_class="batch", limits=limits, expires="30d") == 0
    made = told()
    (record,) = KeysFile.model_validate_json(the_file(typed).read_text()).keys
    assert record.sha256 == hashlib.sha256(made["key"].encode()).hexdigest()
    assert (record.id, record.name, record.key_class) == (made["id"], "Robot", "batch")
    assert record.limits.model_dump(exclude_none=True) == {
        "running": 1,
        "tokens_per_minute": 20_000,
    }
    assert record.expires_at_s == record.created_at_s + 30 * DAY_S
    found = (path.read_text() for path in typed.root.rglob("*") if path.is_file())
    assert not any(made["key"] in text for text in found)


def test_who_reads_the_list_learns_no_key_and_no_digest(
    typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    create(typed)
    key = json.loads(capsys.readouterr().out)["key"]
    assert keying.list_keys(typed) == 0
    assert keying.list_keys(Typed(root=typed.root)) == 0
    said = capsys.readouterr().out
    assert "Robot" in said
    assert key not in said
    assert hashlib.sha256(key.encode()).hexdigest() not in said


def test_files_are_for_the_stacks_user_alone_and_replaced_whole(typed: Typed) -> None:
    create(typed)
    path = the_file(typed)
    first = path.stat()
    assert stat.S_IMODE(first.st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with path.open() as reading:
        create(typed, "Another")
        assert len(json.load(reading)["keys"]) == 1
    assert path.stat().st_ino != first.st_ino
    assert [file.name for file in path.parent.iterdir()] == ["keys.json"]
    expected = 10001 if os.geteuid() == 0 else os.geteuid()
    assert path.stat().st_uid == path.parent.stat().st_uid == expected


def test_many_made_at_once_are_all_there(typed: Typed) -> None:
    names = [f"Robot {number}" for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: create(typed, name), names))
    keys = key_files.read_keys(the_file(typed).parent).keys
    assert sorted(key.name for key in keys) == sorted(names)
    assert len({key.id for key in keys}) == len(names)


def test_a_revoked_key_is_gone_and_its_name_and_its_use_stay(
    typed: Typed, told: Callable[[], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    create(typed)
    key_id = told()["id"]
    book(typed, (NOON_S, key_id, 10, 20), (NOON_S + DAY_S, key_id, 1, 2))
    assert keying.revoke(typed, "Robot") == 0
    # No gateway runs here.
    assert told() == {"revoked": key_id, "ended": None}
    keying.list_keys(typed)
    listed = told()
    assert listed["keys"] == []
    at_s = listed["revoked"][key_id].pop("revoked_at_s")
    assert 0 <= time.time() - at_s < DAY_S
    used = {"requests": 2, "tokens": 33, "tokens_today": 0, "last_at_s": NOON_S + DAY_S}
    assert listed["revoked"] == {key_id: {"name": "Robot"} | used}
    keying.list_keys(replace(typed, as_json=False))
    day = time.strftime("%Y-%m-%d", time.gmtime(at_s))
    said = capsys.readouterr().out
    assert re.search(rf"^{key_id} +Robot +revoked {day} +2 requests, 33 tokens", said, re.MULTILINE)


def test_a_revoked_keys_id_goes_to_nobody_else(
    typed: Typed, told: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    random = key_files.random_bytes
    monkeypatch.setattr(
        key_files, "random_bytes", lambda n: bytes(range(16)) if n == 16 else random(n)
    )
    create(typed)
    first = told()["id"]
    keying.revoke(typed, "Robot")
    told()
    create(typed)
    assert told()["id"] != first


def test_a_limit_changes_what_it_names_and_none_takes_it_away(
    typed: Typed, told: Callable[[], Any]
) -> None:
    create(typed, limits={"running": "2", "tokens_per_day": "1M"}, expires="30d")
    before = told()
    limits = {"running": "none", "requests_per_minute": "60"}
    assert keying.limit(typed, "Robot", key_class=None, limits=limits, expires=None) == 0
    after = told()
    given = {name: value for name, value in after["limits"].items() if value is not None}
    assert given == {"requests_per_minute": 60, "tokens_per_day": 10**6}
    assert after["expires_at_s"] == before["expires_at_s"]
    keying.limit(typed, "Robot", key_class="batch", limits={}, expires="never")
    again = told()
    assert (again["class"], again["expires_at_s"]) == ("batch", None)
    assert again["limits"] == after["limits"]


@pytest.mark.parametrize("name", ["", "  ", "x" * 65, "two\nlines"])
def test_a_name_that_no_list_can_show_is_refused(typed: Typed, name: str) -> None:
    with pytest.raises(BadConfiguration, match="can't name a key"):
        create(typed, name)


def test_a_name_is_given_once(typed: Typed) -> None:
    create(typed)
    with pytest.raises(BadConfiguration, match="named 'Robot' already"):
        create(typed)


def test_a_damaged_file_is_told_without_what_stands_in_it_and_left_alone(typed: Typed) -> None:
    path = the_file(typed)
    path.parent.mkdir(parents=True)
    path.write_text('{"keys": [{"id": "k-1", "sha256": "sk-secret"}]}')
    with pytest.raises(BadConfiguration) as caught:
        create(typed)
    assert "secret" not in f"{caught.value.why} {caught.value.next_step}"
    assert "sk-secret" in path.read_text()


# --- the gateway's books


def book(typed: Typed, *entries: tuple[int, str, int, int]) -> None:
    """As the gateway has them open: written ahead, and not closed."""
    folder = typed.root / ".state" / "usage"
    folder.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(folder / "usage.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    columns = "at_s INTEGER, key_id TEXT, prompt_tokens INTEGER, completion_tokens INTEGER"
    database.execute(f"CREATE TABLE IF NOT EXISTS usage ({columns})")
    database.executemany("INSERT INTO usage VALUES (?, ?, ?, ?)", entries)
    database.close()


def test_what_was_used_is_read_by_key_and_since_midnight(typed: Typed) -> None:
    midnight_s = NOON_S - 43_200
    book(
        typed,
        (midnight_s - 1, "k-1", 1000, 2000),
        (midnight_s, "k-1", 100, 200),
        (NOON_S, "k-1", 10, 20),
        (NOON_S, "local", 1, 2),
    )
    books = key_files.read_books(typed.root / ".state" / "usage", midnight_s)
    assert books.usage["k-1"] == KeyUsage(
        requests=3, tokens=3330, tokens_today=330, last_at_s=NOON_S
    )
    assert books.usage["local"].tokens == 3


def test_no_books_yet_is_nothing_used_and_damaged_ones_are_told(
    typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    keying.list_keys(Typed(root=typed.root))
    assert "not known" not in capsys.readouterr().out
    folder = typed.root / ".state" / "usage"
    folder.mkdir(parents=True)
    (folder / "usage.sqlite").write_text("no database at all, however long it is" * 20)
    assert keying.list_keys(Typed(root=typed.root)) == 0
    assert "What was used is not known" in capsys.readouterr().out


# --- the command line


def test_the_whole_life_of_a_key_by_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def key(*arguments: str) -> str:
        assert main(["key", *arguments, "--state-dir", str(tmp_path)]) == 0
        return capsys.readouterr().out

    made = key("create", "Lab robot", "--class", "batch", "--rpm", "60", "--tpd", "500k")
    (key_id,) = re.findall(r"Key (k-[0-9a-f]{4}) for Lab robot", made)
    assert re.search(r"^  sk-[A-Za-z0-9_-]{43}$", made, re.MULTILINE)
    assert "60 requests/min, 500k tokens/day" in key("list")
    assert "1 at once" in key("limit", key_id, "--running", "1")
    key("revoke", "Lab robot")
    assert key_id not in key("list")


def test_a_mistake_ends_with_2_and_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["key", "create", "R", "--tpm", "lots", "--state-dir", str(tmp_path)]) == 2
    assert "20k" in capsys.readouterr().err

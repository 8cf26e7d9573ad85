"""Keys of the API in people's words: limits and ends as they are typed, keys as they are listed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from orchestrator.core.errors import BadConfiguration
from orchestrator.core.keys import OWN_IDS, Key, KeyLimits, KeyUsage, RevokedKey

LIMIT_WORDS: Mapping[str, str] = {
    "running": "at once",
    "queued": "waiting",
    "requests_per_minute": "requests/min",
    "tokens_per_minute": "tokens/min",
    "tokens_per_day": "tokens/day",
}

NO_LIMIT = ("none", "never")
_COUNT = re.compile(r"([0-9]{1,15})([kKmM]?)")
_TIMES = {"": 1, "k": 10**3, "m": 10**6}
_SPAN = re.compile(r"([0-9]{1,15})([hdw])")
_SPAN_S = {"h": 3600, "d": 86_400, "w": 7 * 86_400}


def read_limit(text: str) -> int | None:
    """`20k` is 20 000, `none` no limit."""
    if text.strip().lower() in NO_LIMIT:
        return None
    found = _COUNT.fullmatch(text.strip())
    number = int(found[1]) * _TIMES[found[2].lower()] if found else 0
    if number < 1:
        raise BadConfiguration(
            f"{text!r} is no limit",
            why="a limit is a number, 1 at the least",
            next_step="write it like 60, 20k or 1M, or none for no limit",
        )
    return number


def read_expiry(text: str, now_s: int) -> int | None:
    """`30d` from now, or a day such as 2027-01-31 at whose beginning in UTC it ends, or never."""
    text = text.strip().lower()
    if text in NO_LIMIT:
        return None
    if found := _SPAN.fullmatch(text):
        ends_at_s = now_s + int(found[1]) * _SPAN_S[found[2]]
    else:
        ends_at_s = _day_s(text)
    if ends_at_s <= now_s or ends_at_s > _LAST_S:
        raise _no_expiry(text)
    return ends_at_s


_LAST_S = int(datetime(9999, 12, 31, tzinfo=timezone.utc).timestamp())


def _day_s(text: str) -> int:
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise _no_expiry(text) from error
    return int(day.timestamp())


def _no_expiry(text: str) -> BadConfiguration:
    return BadConfiguration(
        f"{text!r} is no time for a key to end",
        why="it must be a span from now or a day in the future",
        next_step="write it like 12h, 30d, 8w or 2027-01-31, or never",
    )


def midnight_s(now_s: int) -> int:
    return now_s - now_s % 86_400


def as_rows(
    keys: Sequence[Key],
    revoked: Sequence[RevokedKey],
    usage: Mapping[str, KeyUsage],
    now_s: int,
) -> Iterator[tuple[str, ...]]:
    """Id, name, class, limits, end, use: the stack's own keys, the given ones, revoked ones with a use."""
    for key_id, name in OWN_IDS.items():
        yield key_id, name, "interactive", "", "", _use(usage.get(key_id))
    for key in keys:
        yield (
            key.id,
            key.name,
            key.key_class,
            limits_in_words(key.limits),
            _end(key.expires_at_s, now_s),
            _use(usage.get(key.id)),
        )
    names = {key.id: key for key in revoked}
    for key_id in ids_of_revoked(keys, usage):
        gone = names.get(key_id)
        name, end = (gone.name, f" {_day(gone.revoked_at_s)}") if gone else ("", "")
        yield key_id, name, "", "", f"revoked{end}", _use(usage[key_id])


def ids_of_revoked(keys: Sequence[Key], usage: Mapping[str, KeyUsage]) -> list[str]:
    """Of those that were used: of a key that never was there is nothing to account for."""
    return sorted(usage.keys() - {key.id for key in keys} - OWN_IDS.keys())


def ended_in_words(requests: int | None) -> str:
    """None: no gateway said how many. One that runs sees by itself that a key is gone."""
    match requests:
        case None:
            return "Requests of it that run or wait end within a second."
        case 0:
            return "No request of it was running or waiting."
        case 1:
            return "One request of it was running or waiting, and was ended."
        case _:
            return f"{requests} requests of it were running or waiting, and were ended."


def as_record(key: Key, usage: KeyUsage | None) -> dict[str, Any]:
    """For programs; no digest, since nobody needs one."""
    record = key.model_dump(mode="json", by_alias=True, exclude={"sha256"})
    return record | {"usage": None if usage is None else usage_record(usage)}


def revoked_record(revoked: RevokedKey | None, usage: KeyUsage) -> dict[str, Any]:
    """`revoked`: None of a key whose name was not kept yet when it was revoked."""
    return {
        "name": revoked.name if revoked else None,
        "revoked_at_s": revoked.revoked_at_s if revoked else None,
        **usage_record(usage),
    }


def usage_record(usage: KeyUsage) -> dict[str, Any]:
    return {
        "requests": usage.requests,
        "tokens": usage.tokens,
        "tokens_today": usage.tokens_today,
        "last_at_s": usage.last_at_s,
    }


def limits_in_words(limits: KeyLimits) -> str:
    said = limits.model_dump(exclude_none=True)
    return ", ".join(
        f"{_short(said[name])} {words}" for name, words in LIMIT_WORDS.items() if name in said
    )


def _short(number: int) -> str:
    for times, sign in ((10**6, "M"), (10**3, "k")):
        if number % times == 0:
            return f"{number // times}{sign}"
    return str(number)


def _end(expires_at_s: int | None, now_s: int) -> str:
    if expires_at_s is None:
        return "never ends"
    day = _day(expires_at_s)
    return f"ended {day}" if expires_at_s <= now_s else f"ends {day}"


def _use(usage: KeyUsage | None) -> str:
    if usage is None or usage.last_at_s is None:
        return "not used"
    requests = "1 request" if usage.requests == 1 else f"{usage.requests} requests"
    return (
        f"{requests}, {usage.tokens} tokens, {usage.tokens_today} of them today, "
        f"last {_day(usage.last_at_s)}"
    )


def _day(at_s: int) -> str:
    return (datetime.fromtimestamp(0, timezone.utc) + timedelta(seconds=at_s)).strftime("%Y-%m-%d")

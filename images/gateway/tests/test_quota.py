"""How much a key may use: by the minute and the day, with what runs counted as it asked."""

from dataclasses import dataclass, field

import pytest

from gateway.caller import Caller, Limits
from gateway.errors import ApiError, Refused
from gateway.ledger import Entry, Totals
from gateway.quota import KeyQuota
from gateway.usage import Usage

NOON_S = 1_790_000_000 // 86_400 * 86_400 + 43_200


@dataclass
class Books:
    """What the ledger knows of each key since a day's midnight."""

    known: dict[float, Totals] = field(default_factory=dict)

    def spent(self, key_id: str, since_s: float) -> Totals:
        return self.known.get(since_s, Totals())

    def book(self, entry: Entry) -> None: ...

    def unwritten(self) -> int:
        return 0

    def close(self) -> None: ...


class Day:
    """A quota and its clocks, at noon of some day."""

    def __init__(self, books: Books | None = None) -> None:
        self.now_s = 0.0
        self.quota = KeyQuota(
            books or Books(), now_s=lambda: self.now_s, wall_s=lambda: NOON_S + self.now_s
        )

    def ask(self, caller: Caller, tokens: int) -> None:
        """A request that has ended, and used just what it asked for."""
        self.quota.charge(caller, tokens)
        self.settle(caller, tokens, tokens)

    def settle(self, caller: Caller, estimate: int, used: int) -> None:
        prompt = used // 3
        usage = Usage(prompt_tokens=prompt, completion_tokens=used - prompt)
        self.quota.settle(caller, estimate, usage)

    def refusal(self, caller: Caller, tokens: int = 1) -> ApiError:
        with pytest.raises(Refused) as refused:
            self.quota.charge(caller, tokens)
        return refused.value.error


def a_caller(key_id: str = "k1", **limits: int) -> Caller:
    return Caller(key_id=key_id, name=key_id, limits=Limits(**limits))


def retry_after_s(error: ApiError) -> int:
    return int(dict(error.headers)["retry-after"])


def test_requests_are_counted_over_the_last_minute_and_by_key() -> None:
    day, caller = Day(), a_caller(requests_per_minute=2)
    day.ask(caller, 1)
    day.now_s = 20
    day.ask(caller, 1)
    day.now_s = 50
    error = day.refusal(caller)
    assert (error.status, error.code, retry_after_s(error)) == (429, "rate_limit", 10)
    day.ask(a_caller("k2", requests_per_minute=2), 1)
    day.now_s = 60
    day.ask(caller, 1)
    assert day.refusal(caller).code == "rate_limit"


def test_a_key_that_may_ask_once_a_minute_is_told_so() -> None:
    day, caller = Day(), a_caller(requests_per_minute=1)
    day.ask(caller, 1)
    assert day.refusal(caller).message == "This API key may ask once a minute."


def test_tokens_of_the_last_minute_count_as_they_were_used() -> None:
    day, caller = Day(), a_caller(tokens_per_minute=100)
    day.quota.charge(caller, 5000)
    day.settle(caller, 5000, 60)
    day.now_s = 30
    day.ask(caller, 60)
    error = day.refusal(caller)
    assert (error.status, error.code, retry_after_s(error)) == (429, "token_rate_limit", 30)
    day.now_s = 60
    day.ask(caller, 1)


def test_a_key_that_has_some_left_may_ask_for_more_than_that_but_not_twice_at_once() -> None:
    day, caller = Day(), a_caller(tokens_per_minute=100)
    day.quota.charge(caller, 4096)
    error = day.refusal(caller)
    assert error.code == "token_rate_limit"
    assert 1 <= retry_after_s(error) <= 60
    day.settle(caller, 4096, 10)
    day.quota.charge(caller, 4096)


def test_what_got_no_permit_used_nothing() -> None:
    day, caller = Day(), a_caller(tokens_per_minute=100, tokens_per_day=100)
    day.quota.charge(caller, 100)
    day.quota.settle(caller, 100, Usage())
    day.quota.charge(caller, 100)


def test_a_refused_request_uses_up_nothing() -> None:
    day, caller = Day(), a_caller(tokens_per_minute=10, requests_per_minute=2)
    day.ask(caller, 10)
    for _ in range(5):
        assert day.refusal(caller).code == "token_rate_limit"
    day.now_s = 59
    assert day.refusal(caller).code == "token_rate_limit"
    day.now_s = 61
    day.ask(caller, 1)


def test_a_day_begins_at_midnight_utc_with_what_the_books_say() -> None:
    midnight_s = NOON_S - 43_200
    books = Books({float(midnight_s): Totals(prompt_tokens=30, completion_tokens=60)})
    day, caller = Day(books), a_caller(tokens_per_day=100)
    day.ask(caller, 9)
    day.ask(caller, 2)
    error = day.refusal(caller)
    assert (error.status, error.code) == (429, "daily_quota")
    assert dict(error.headers)["x-should-retry"] == "false"
    assert retry_after_s(error) == 120
    day.now_s = 43_200 - 1
    assert retry_after_s(day.refusal(caller)) == 1
    day.now_s = 43_200
    day.ask(caller, 99)
    day.ask(caller, 1)
    assert day.refusal(caller).code == "daily_quota"


def test_what_is_only_asked_for_is_not_a_day_used_up() -> None:
    """The books may say in a moment that most of it was never used: clients are to try again."""
    day, caller = Day(), a_caller(tokens_per_day=1000)
    day.quota.charge(caller, 4096)
    error = day.refusal(caller)
    assert (error.status, error.code, retry_after_s(error)) == (429, "daily_quota_in_use", 60)
    assert "x-should-retry" not in dict(error.headers)
    day.settle(caller, 4096, 10)
    day.ask(caller, 990)
    assert day.refusal(caller).code == "daily_quota"


def test_a_days_limit_that_was_lifted_for_a_while_counts_all_of_the_day() -> None:
    day, limited = Day(), a_caller(tokens_per_day=100)
    day.ask(limited, 50)
    day.ask(a_caller(), 900)
    assert day.refusal(limited).code == "daily_quota"


def test_a_key_without_limits_is_never_refused() -> None:
    day, caller = Day(), a_caller()
    for _ in range(1000):
        day.ask(caller, 10**9)

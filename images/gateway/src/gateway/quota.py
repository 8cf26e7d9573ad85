"""What a key may use in a minute and a day, checked before the line: what is over it does not queue.

Tokens are reserved as they are asked for, and counted as they were used once an answer has ended. A
key that has some left may begin one more request, whatever that asks for: how long an answer gets
is known at its end only.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from gateway.caller import Caller, Limits
from gateway.errors import ApiError, Refused, too_many
from gateway.ledger import Ledger
from gateway.usage import Usage

_MINUTE_S = 60.0
_DAY_S = 86_400


class Quota(Protocol):
    def charge(self, caller: Caller, tokens_estimate: int) -> None:
        """Counts a request that is about to queue; Refused where the key has used up its own."""

    def settle(self, caller: Caller, tokens_estimate: int, usage: Usage) -> None:
        """Puts what an answer really used in place of the estimate."""


class _LastMinute:
    """A sum of what happened in the last sixty seconds."""

    def __init__(self) -> None:
        self._events: deque[tuple[float, int]] = deque()
        self.total = 0

    def add(self, now_s: float, amount: int) -> None:
        self._events.append((now_s, amount))
        self.total += amount

    def forget(self, now_s: float) -> None:
        while self._events and self._events[0][0] <= now_s - _MINUTE_S:
            self.total -= self._events.popleft()[1]

    def frees_in_s(self, now_s: float, below: int) -> float:
        """When the total is below that, if nothing more is added."""
        left = self.total
        for at_s, amount in self._events:
            left -= amount
            if left < below:
                return at_s + _MINUTE_S - now_s
        return _MINUTE_S


@dataclass(slots=True)
class _Used:
    requests: _LastMinute = field(default_factory=_LastMinute)
    tokens: _LastMinute = field(default_factory=_LastMinute)
    reserved: int = 0
    """By requests that have not ended."""
    day: int | None = None
    day_tokens: int = 0


class KeyQuota:
    """By key. The ledger says what a day began with, so a restart makes nobody's day anew."""

    def __init__(
        self, ledger: Ledger, *, now_s: Callable[[], float], wall_s: Callable[[], float]
    ) -> None:
        self._ledger = ledger
        self._now_s = now_s
        self._wall_s = wall_s
        self._used: dict[str, _Used] = {}

    def charge(self, caller: Caller, tokens_estimate: int) -> None:
        limits = caller.limits
        used = self._of(caller)
        now_s = self._now_s()
        error = (
            _too_many_requests(limits, used, now_s)
            or self._too_many_today(caller, used)
            or _too_many_tokens(limits, used, now_s)
        )
        if error is not None:
            raise Refused(error)
        if limits.requests_per_minute is not None:
            used.requests.add(now_s, 1)
        used.reserved += tokens_estimate

    def settle(self, caller: Caller, tokens_estimate: int, usage: Usage) -> None:
        used = self._of(caller)
        used.reserved -= tokens_estimate
        tokens = usage.prompt_tokens + usage.completion_tokens
        if caller.limits.tokens_per_minute is not None:
            used.tokens.forget(self._now_s())
            used.tokens.add(self._now_s(), tokens)
        # Also where the limit was taken away: it may be back before the day is over.
        if used.day is not None or caller.limits.tokens_per_day is not None:
            self._begin_day(caller, used)
            used.day_tokens += tokens

    def _of(self, caller: Caller) -> _Used:
        if (used := self._used.get(caller.key_id)) is None:
            used = self._used[caller.key_id] = _Used()
        return used

    def _too_many_today(self, caller: Caller, used: _Used) -> ApiError | None:
        allowed = caller.limits.tokens_per_day
        if allowed is None:
            return None
        self._begin_day(caller, used)
        if used.day_tokens + used.reserved < allowed:
            return None
        if used.day_tokens < allowed:
            message = (
                f"This API key may use {allowed} tokens a day, and its requests that have not ended"
                " ask for all that is left: try again when one of them has."
            )
            return too_many("daily_quota_in_use", message, _MINUTE_S)
        message = f"This API key may use {allowed} tokens a day; it starts again at 00:00 UTC."
        error = too_many("daily_quota", message, _DAY_S - self._wall_s() % _DAY_S)
        # Clients that retry by themselves would do so all day.
        return replace(error, headers=(*error.headers, ("x-should-retry", "false")))

    def _begin_day(self, caller: Caller, used: _Used) -> None:
        day = int(self._wall_s() // _DAY_S)
        if used.day != day:
            spent = self._ledger.spent(caller.key_id, day * _DAY_S)
            used.day, used.day_tokens = day, spent.prompt_tokens + spent.completion_tokens


def _too_many_requests(limits: Limits, used: _Used, now_s: float) -> ApiError | None:
    allowed = limits.requests_per_minute
    if allowed is None:
        return None
    used.requests.forget(now_s)
    if used.requests.total < allowed:
        return None
    often = "once" if allowed == 1 else f"{allowed} times"
    message = f"This API key may ask {often} a minute."
    return too_many("rate_limit", message, used.requests.frees_in_s(now_s, allowed))


def _too_many_tokens(limits: Limits, used: _Used, now_s: float) -> ApiError | None:
    allowed = limits.tokens_per_minute
    if allowed is None:
        return None
    used.tokens.forget(now_s)
    if used.tokens.total + used.reserved < allowed:
        return None
    message = f"This API key may use {allowed} tokens a minute."
    retry_s = used.tokens.frees_in_s(now_s, allowed - used.reserved)
    return too_many("token_rate_limit", message, retry_s)

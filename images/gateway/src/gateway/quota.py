"""What a key may use in a minute, checked before the line: a request over it does not queue."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from gateway.caller import Caller
from gateway.errors import Refused, too_many
from gateway.usage import Usage

_MINUTE_S = 60.0


class Quota(Protocol):
    def charge(self, caller: Caller, tokens_estimate: int) -> None:
        """Counts a request that is about to queue; Refused where the key has used up its own."""

    def settle(self, caller: Caller, tokens_estimate: int, usage: Usage) -> None:
        """Puts what an answer really used in place of the estimate."""


class MinuteQuota:
    """Requests of the last sixty seconds, by key."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._at_s: dict[str, deque[float]] = {}

    def charge(self, caller: Caller, tokens_estimate: int) -> None:  # noqa: ARG002 - counts requests
        allowed = caller.limits.requests_per_minute
        if allowed is None:
            return
        now_s = self._now_s()
        at_s = self._at_s.setdefault(caller.key_id, deque())
        while at_s and at_s[0] <= now_s - _MINUTE_S:
            at_s.popleft()
        if len(at_s) >= allowed:
            message = f"This API key may ask {allowed} times a minute."
            raise Refused(too_many("rate_limit", message, at_s[0] + _MINUTE_S - now_s))
        at_s.append(now_s)

    def settle(self, caller: Caller, tokens_estimate: int, usage: Usage) -> None:
        """Nothing to correct: requests are counted, whatever they used."""

"""How long to wait, how fast to go, how slow is too slow. Arithmetic on times that it is given."""

import threading
from collections import deque
from email.utils import parsedate_to_datetime

RETRY_AFTER_CAP_S = 600.0
OVER_S = 60.0


def backoff_s(failures: int, cap_s: float, jitter: float) -> float:
    """1, 2, 4, ... seconds up to the cap, less up to half of it: `jitter` is between 0 and 1."""
    longest_s = min(cap_s, 2.0 ** min(failures - 1, 30))
    return longest_s * (1 - jitter / 2)


def retry_after_s(header: str | None, now: float) -> float | None:
    """Seconds, or a date (`now` is the clock on the wall). What is not understood is as if not said."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return min(float(header), RETRY_AFTER_CAP_S)
    try:
        wanted_s = parsedate_to_datetime(header).timestamp() - now
    except ValueError:
        return None
    return min(max(wanted_s, 0.0), RETRY_AFTER_CAP_S)


class RateLimit:
    """All streams together: each asks how long to wait after it took some bytes."""

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._free_at_s = 0.0
        self._lock = threading.Lock()

    def wait_s(self, taken_bytes: int, now_s: float) -> float:
        if self._rate is None:
            return 0.0
        with self._lock:
            self._free_at_s = max(self._free_at_s, now_s) + taken_bytes / self._rate
            return self._free_at_s - now_s


class RateFloor:
    """One stream's watchdog against a connection that lives but hardly moves.

    The floor is halved for each connection in a row that was too slow: on a line that gives no more,
    connecting anew must not become all that is done.
    """

    def __init__(self, floor: float, window_s: float, now_s: float, slow_before: int = 0) -> None:
        self.floor = floor / 2.0**slow_before
        self._window_s = window_s
        self._since_s = now_s
        self._bytes = 0

    def add(self, count: int, now_s: float) -> bool | None:
        """True: a window went well. False: it was too slow. None: it is not over."""
        self._bytes += count
        elapsed_s = now_s - self._since_s
        if elapsed_s < self._window_s:
            return None
        fine = self._bytes >= self.floor * elapsed_s
        self._since_s, self._bytes = now_s, 0
        return fine


def floor_for(min_rate: int, limit_rate: int | None, streams: int) -> float:
    """A stream that is held back by our own limit is not a slow one."""
    return min(min_rate, limit_rate / streams / 2) if limit_rate else float(min_rate)


class RecentRate:
    """Bytes a second over the last minute."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def restart(self) -> None:
        self._samples.clear()

    def at(self, moved_bytes: int, now_s: float) -> float:
        self._samples.append((now_s, moved_bytes))
        while self._samples[0][0] < now_s - OVER_S:
            self._samples.popleft()
        since_s, before = self._samples[0]
        return (moved_bytes - before) / (now_s - since_s) if now_s > since_s else 0.0

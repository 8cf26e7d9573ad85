"""The time that patience is measured with."""

import time
from datetime import datetime, timezone


def today() -> str:
    """Now, in UTC, as a lock says it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


class SystemClock:
    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

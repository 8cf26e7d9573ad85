"""Watches an engine that was lost: the line is held until it is back.

Its /health says when. Where that is good and the engine is lost again all the same, the line is held
for longer each time: requests keep their places, and the engine is not run down by being asked.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from gateway.admission.line import Line
from gateway.admission.tickets import Hold
from gateway.readiness import readiness
from gateway.upstream import Engine

_log = logging.getLogger(__name__)

_EVERY_S = 1.0
_PATIENCE_S = 2.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0

_random = random.SystemRandom().random


class EngineWatch:
    def __init__(
        self,
        engine: Engine,
        line: Line,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        spread: Callable[[], float] = _random,
    ) -> None:
        """`spread`: from 0 to 1, how much of a pause is left out."""
        self._engine = engine
        self._line = line
        self._sleep = sleep
        self._spread = spread
        self._watching: asyncio.Task[None] | None = None
        self._losses = 0
        """Since the last answer that came to its end."""

    def lost(self) -> None:
        """Holds the line at once, and until the engine answers: at once too, if it never was gone."""
        if self._watching is None:
            self._losses += 1
            self._line.hold("engine", Hold("restarting", "The engine was lost."))
            self._watching = asyncio.create_task(self._until_back())

    def answered(self) -> None:
        """The engine does what it should: a loss after this is a new one."""
        self._losses = 0

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _until_back(self) -> None:
        _log.warning("the engine was lost: the line is held")
        try:
            if pause_s := pause_after(self._losses, self._spread()):
                said = f"The engine was lost {self._losses} times in a row."
                self._line.hold("engine", Hold("restarting", said))
                await self._sleep(pause_s)
            while not (found := await readiness(self._engine, timeout_s=_PATIENCE_S)).ready:
                self._line.hold("engine", Hold("restarting", f"Seen last: {found.reason}."))
                await self._sleep(_EVERY_S)
        finally:
            self._watching = None
            self._line.release("engine")
        _log.warning("the engine is back: the line goes on")


def pause_after(losses: int, spread: float) -> float:
    """Seconds before the engine is asked again: none after one loss, then twice as long each time.

    `spread`, 0 to 1, takes off up to half, so that several who wait for one thing do not meet.
    """
    if losses <= 1:
        return 0.0
    # Doubled without end it would be no number any more.
    doubled_s = _FIRST_PAUSE_S * float(2 ** min(losses - 2, 10))
    return min(doubled_s, _LONGEST_PAUSE_S) * (1 - spread / 2)

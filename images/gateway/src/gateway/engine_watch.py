"""Watches an engine that was lost: the line is held until its /health says that it is back."""

import asyncio
import logging

from gateway.admission.line import Line
from gateway.admission.tickets import Hold
from gateway.readiness import readiness
from gateway.upstream import Engine

_log = logging.getLogger(__name__)

_EVERY_S = 1.0
_PATIENCE_S = 2.0


class EngineWatch:
    def __init__(self, engine: Engine, line: Line) -> None:
        self._engine = engine
        self._line = line
        self._watching: asyncio.Task[None] | None = None

    def lost(self) -> None:
        """Holds the line at once, and until the engine answers: at once too, if it never was gone."""
        if self._watching is None:
            self._line.hold("engine", Hold("restarting", "The engine was lost."))
            self._watching = asyncio.create_task(self._until_back())

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _until_back(self) -> None:
        _log.warning("the engine was lost: the line is held")
        try:
            while not (found := await readiness(self._engine, timeout_s=_PATIENCE_S)).ready:
                self._line.hold("engine", Hold("restarting", f"Seen last: {found.reason}."))
                await asyncio.sleep(_EVERY_S)
        finally:
            self._watching = None
            self._line.release("engine")
        _log.warning("the engine is back: the line goes on")

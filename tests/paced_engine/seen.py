"""What the paced engine remembers of every request."""

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, kw_only=True)
class Seen:
    request_id: str
    path: str
    headers: dict[str, str]
    body: bytes = b""
    started: bool = False
    ticks: int = 0
    closed_at_tick: int | None = None
    ran_to_end: bool = False
    ended: bool = False
    engine_id: str | None = None
    """The `rid` that it was sent under."""
    aborted: bool = False
    beside: int = 0
    """How many others the engine was working on when this one started."""

    def as_json(self) -> dict[str, Any]:
        return {
            "request_id": self.request_id,
            "path": self.path,
            "headers": self.headers,
            "body_b64": base64.b64encode(self.body).decode("ascii"),
            "started": self.started,
            "ticks": self.ticks,
            "closed_at_tick": self.closed_at_tick,
            "ran_to_end": self.ran_to_end,
            "ended": self.ended,
            "engine_id": self.engine_id,
            "aborted": self.aborted,
            "beside": self.beside,
        }


@dataclass(slots=True)
class Memory:
    requests: list[Seen] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def find(self, request_id: str) -> Seen | None:
        return next((seen for seen in self.requests if seen.request_id == request_id), None)

    def abort(self, engine_id: str) -> None:
        """By prefix, as SGLang does it."""
        for seen in self.requests:
            if seen.engine_id is not None and seen.engine_id.startswith(engine_id):
                seen.aborted = True

    def aborted_have_ended(self) -> bool:
        return all(seen.ended for seen in self.requests if seen.aborted)

    async def change(self, change: Callable[[], None]) -> None:
        async with self._changed:
            change()
            self._changed.notify_all()

    async def wait_for(self, true: Callable[[], bool], within_s: float) -> bool:
        """False when it did not come true in time."""
        try:
            await asyncio.wait_for(self._until(true), within_s)
        except asyncio.TimeoutError:
            return False
        return True

    async def _until(self, true: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(true)

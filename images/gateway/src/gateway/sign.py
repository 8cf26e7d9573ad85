"""What a client sees of its wait: first nothing, then comments in a stream that has begun."""

import asyncio
import math
from dataclasses import dataclass, field

from gateway.admission.line import Line
from gateway.admission.tickets import Hold, Place, Ticket
from gateway.dialects.dialect import Dialect
from gateway.errors import Headers
from gateway.policy import Queue
from gateway.reply import Reply

# An estimate is none to the second.
_ETA_STEP_S = 5
_EVENT_STREAM: Headers = [(b"content-type", b"text/event-stream")]


def rounded_s(eta_s: float) -> int:
    return max(1, math.ceil(eta_s / _ETA_STEP_S)) * _ETA_STEP_S


def queue_headers(place: Place) -> Headers:
    position = (b"x-queue-position", str(place.position).encode("ascii"))
    if place.eta_s is None:
        return [position]
    return [position, (b"x-queue-eta", str(rounded_s(place.eta_s)).encode("ascii"))]


@dataclass(slots=True, kw_only=True)
class Sign:
    """Over one waiting request, from `up` to `down`. Needs a running loop.

    Until `visible_after_s` the status stays open, so that a refusal is one. Afterwards a stream
    begins, with comments of which each client library is known to skip every one.
    """

    line: Line
    ticket: Ticket
    reply: Reply
    dialect: Dialect
    queue: Queue
    _down: asyncio.Future[None] = field(init=False)
    _timer: asyncio.TimerHandle | None = field(init=False, default=None)
    _telling: asyncio.Task[None] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._down = asyncio.get_running_loop().create_future()

    def up(self) -> None:
        if self.ticket.stream and self.dialect.comment("queue"):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.queue.visible_after_s, self._begin)

    async def down(self) -> None:
        """Nothing is being sent any more when this returns."""
        if self._timer is not None:
            self._timer.cancel()
        if self._telling is not None:
            self._down.set_result(None)
            await asyncio.wait({self._telling})
            self._telling.result()

    def drop(self) -> None:
        """At once: whoever does not read must not keep one waiting that is cancelled."""
        if self._timer is not None:
            self._timer.cancel()
        if self._telling is not None:
            self._telling.cancel()

    def _begin(self) -> None:
        self._telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        while (place := self._place()) is not None:
            if not self.reply.started:
                self.reply.more_headers = queue_headers(place)
                await self.reply.start_stream(200, self.dialect.stream_headers(_EVENT_STREAM))
            await self.reply.send_some(self.dialect.comment(self._text(place)))
            await asyncio.wait({self._down}, timeout=self.queue.visible_every_s)

    def _place(self) -> Place | None:
        return None if self._down.done() else self.line.place(self.ticket.number)

    def _text(self, place: Place) -> str:
        said = [f"queue position={place.position}"]
        if place.eta_s is not None:
            said.append(f"eta={rounded_s(place.eta_s)}s")
        state = self.line.snapshot().state
        if isinstance(state, Hold):
            # On one line, whatever the admin has written: a line break would end the comment.
            said.append(f"{state.reason} {state.progress}")
        return " ".join(" ".join(said).split())

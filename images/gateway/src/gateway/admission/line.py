"""The core's asyncio shell: requests wait here, and time and the end of permits wake the core."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from gateway.admission.tickets import (
    Core,
    Drain,
    Hold,
    Holder,
    Open,
    Place,
    Snapshot,
    Spent,
    Ticket,
    TurnedAway,
)
from gateway.errors import ApiError, Refused, not_now, too_many
from gateway.policy import Queue


class Permit:
    """The right to use the engine, from dispatch until `release`."""

    def __init__(
        self,
        line: "Line",
        ticket: Ticket,
        *,
        entered_s: float,
        granted_s: float,
        place: Place | None = None,
    ) -> None:
        self._line = line
        self._released = False
        self.ticket = ticket
        self.waited_s = granted_s - entered_s
        self.granted_s = granted_s
        self.place = place
        """Where it stood on entering the line; None if it did not have to wait."""

    def release(self, spent: Spent) -> None:
        """Gives the right back; a second call changes nothing."""
        if not self._released:
            self._released = True
            self._line.finish(self.ticket.number, spent)


@dataclass(frozen=True, slots=True)
class Standing:
    """A request in the line, or of a permit: then it has no place any more."""

    ticket: Ticket
    place: Place | None
    since_s: float
    """Since its entry into the line, or its permit."""


class _Waiter(NamedTuple):
    ticket: Ticket
    entered_s: float
    granted: asyncio.Future[None]


class Line:
    def __init__(self, core: Core, now_s: Callable[[], float]) -> None:
        self._core = core
        self._now_s = now_s
        self._waiting: dict[int, _Waiter] = {}
        self._permits: dict[int, Permit] = {}
        self._holds: dict[Holder, Hold] = {}
        self._draining = False
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, ticket: Ticket) -> Permit:
        """Waits for a permit. Refused where the line is full or shut, or the wait too long."""
        return self.admit(ticket) or await self.wait(ticket)

    def admit(self, ticket: Ticket) -> Permit | None:
        """The permit, where nobody has to wait for it; else `wait` has it. Refused as by `enter`."""
        entered_s = self._now_s()
        if (turned_away := self._core.enqueue(ticket, entered_s)) is not None:
            raise Refused(self._refusal(turned_away))
        granted = self._stand(ticket, entered_s)
        if not granted.done():
            return None
        granted.result()
        return self._permit(ticket, entered_s, None)

    async def again(self, permit: Permit) -> Permit:
        """Waits for a new permit in place of one whose engine was lost, at the place it had."""
        del self._permits[permit.ticket.number]
        self._core.put_back(permit.ticket.number, self._now_s())
        entered_s = permit.granted_s - permit.waited_s
        granted = self._stand(permit.ticket, entered_s)
        return await self._awaited(permit.ticket, entered_s, granted)

    def finish(self, number: int, spent: Spent) -> None:
        del self._permits[number]
        self._core.finish(number, spent, self._now_s())
        self._pump()

    def hold(self, holder: Holder, hold: Hold) -> None:
        self._holds[holder] = hold
        self._apply_state()

    def release(self, holder: Holder) -> None:
        self._holds.pop(holder, None)
        self._apply_state()

    def drain(self) -> None:
        """From here to the process's end."""
        self._draining = True
        self._apply_state()

    def set_capacity(self, capacity: int) -> None:
        self._core.set_capacity(capacity)
        self._pump()

    def set_limits(self, limits: Queue) -> None:
        self._core.set_limits(limits)
        self._pump()

    def place(self, number: int) -> Place | None:
        return self._core.place(number, self._now_s())

    def of_key(self, key_id: str) -> list[Standing]:
        """That key's requests, who has a permit first, then in the order of their places."""
        now_s = self._now_s()
        running = [
            Standing(permit.ticket, None, now_s - permit.granted_s)
            for permit in self._permits.values()
            if permit.ticket.key_id == key_id
        ]
        queued = [
            (place.position, Standing(waiter.ticket, place, now_s - waiter.entered_s))
            for number, waiter in self._waiting.items()
            if waiter.ticket.key_id == key_id and (place := self.place(number)) is not None
        ]
        return running + [standing for _, standing in sorted(queued, key=lambda pair: pair[0])]

    def snapshot(self) -> Snapshot:
        return self._core.snapshot()

    def _stand(self, ticket: Ticket, entered_s: float) -> asyncio.Future[None]:
        """In the line, where it may be let go at once."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[ticket.number] = _Waiter(ticket, entered_s, granted)
        self._pump()
        return granted

    async def wait(self, ticket: Ticket) -> Permit:
        """For the permit that `admit` could not give at once."""
        waiter = self._waiting[ticket.number]
        return await self._awaited(ticket, waiter.entered_s, waiter.granted)

    async def _awaited(
        self, ticket: Ticket, entered_s: float, granted: asyncio.Future[None]
    ) -> Permit:
        place = None if granted.done() else self.place(ticket.number)
        try:
            if not granted.done():
                # Not `await granted`: a cancellation would reach it too, and a grant with it.
                await asyncio.wait({granted})
        except asyncio.CancelledError:
            if self._waiting.pop(ticket.number, None) is not None:
                self._core.leave(ticket.number, self._now_s())
            elif granted.exception() is None:
                # Granted and cancelled in the same turn of the loop: the permit was never used.
                self._core.put_back(ticket.number, self._now_s())
                self._core.leave(ticket.number, self._now_s())
            self._pump()
            raise
        granted.result()
        return self._permit(ticket, entered_s, place)

    def _permit(self, ticket: Ticket, entered_s: float, place: Place | None) -> Permit:
        permit = Permit(self, ticket, entered_s=entered_s, granted_s=self._now_s(), place=place)
        self._permits[ticket.number] = permit
        return permit

    def _apply_state(self) -> None:
        held = self._holds.get("admin") or self._holds.get("engine")
        draining = Drain(held=held is not None) if self._draining else None
        self._core.set_state(draining or held or Open())
        self._pump()

    def _pump(self) -> None:
        """Lets the core decide, and wakes whom it decided about."""
        if not self._waiting and self._timer is None:
            return
        now_s = self._now_s()
        for number in self._core.expire(now_s):
            self._waiting.pop(number).granted.set_exception(Refused(self._wait_over()))
        for number in self._core.dispatch(now_s):
            self._waiting.pop(number).granted.set_result(None)
        self._set_timer(now_s)

    def _set_timer(self, now_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and (at_s := self._core.next_change_s(now_s)) is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, at_s - now_s), self._pump)

    def _refusal(self, turned_away: TurnedAway) -> ApiError:
        after_s = self._core.retry_after_s(self._now_s())
        match turned_away:
            case "queue_full":
                return too_many("queue_full", "Too many requests are waiting.", after_s)
            case "key_queue_full":
                message = "Too many requests of this API key are waiting."
                return too_many("key_queue_full", message, after_s)
            case "draining":
                message = "The gateway is shutting down and takes no more requests."
                return not_now("shutting_down", message, after_s)

    def _wait_over(self) -> ApiError:
        after_s = self._core.retry_after_s(self._now_s())
        state = self._core.snapshot().state
        if isinstance(state, Hold):
            said = f"The model is {state.reason}. {state.progress}".strip()
            return not_now("model_on_hold", said, after_s)
        return not_now("queue_timeout", "The wait for the engine took too long.", after_s)

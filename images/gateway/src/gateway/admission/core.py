"""First come, first served, within bounds: the plainest `Core`."""

from collections import Counter
from dataclasses import dataclass

from gateway.admission.tickets import (
    Drain,
    Hold,
    Open,
    Place,
    Snapshot,
    Spent,
    State,
    Ticket,
    TurnedAway,
)
from gateway.policy import Queue

_RETRY_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class _Waiting:
    ticket: Ticket
    since_s: float


class FirstComeCore:
    def __init__(self, limits: Queue) -> None:
        self._limits = limits
        self._capacity = limits.capacity
        self._state: State = Open()
        self._queue: dict[int, _Waiting] = {}
        self._running: dict[int, _Waiting] = {}

    def enqueue(self, ticket: Ticket, now_s: float) -> TurnedAway | None:
        if isinstance(self._state, Drain):
            return "draining"
        if not self._free_at_once(ticket):
            if len(self._queue) >= self._limits.max_queued:
                return "queue_full"
            allowed = ticket.limits.queued or self._limits.max_queued_per_key
            if self._count(self._queue, ticket.key_id) >= allowed:
                return "key_queue_full"
        self._queue[ticket.number] = _Waiting(ticket, now_s)
        return None

    def dispatch(self, now_s: float) -> list[int]:  # noqa: ARG002 - other cores need the time
        if isinstance(self._state, Hold):
            return []
        going = []
        for number, waiting in list(self._queue.items()):
            if len(self._running) >= self._capacity:
                break
            if self._may_run(waiting.ticket):
                self._running[number] = self._queue.pop(number)
                going.append(number)
        return going

    def expire(self, now_s: float) -> list[int]:
        over = [
            number
            for number, waiting in self._queue.items()
            if waiting.since_s + self._limits.max_wait_s <= now_s
        ]
        for number in over:
            del self._queue[number]
        return over

    def next_change_s(self, now_s: float) -> float | None:  # noqa: ARG002 - other cores need the time
        since_s = min((waiting.since_s for waiting in self._queue.values()), default=None)
        return None if since_s is None else since_s + self._limits.max_wait_s

    def leave(self, number: int, now_s: float) -> None:  # noqa: ARG002 - other cores need the time
        del self._queue[number]

    def finish(self, number: int, spent: Spent, now_s: float) -> None:  # noqa: ARG002 - other cores learn from it
        del self._running[number]

    def put_back(self, number: int, now_s: float) -> None:  # noqa: ARG002 - other cores need the time
        back = {number: self._running.pop(number)}
        merged = sorted({**self._queue, **back}.items(), key=lambda item: item[1].since_s)
        self._queue = dict(merged)

    def set_limits(self, limits: Queue) -> None:
        self._limits = limits
        self._capacity = limits.capacity

    def set_capacity(self, capacity: int) -> None:
        self._capacity = capacity

    def set_state(self, state: State) -> None:
        self._state = state

    def place(self, number: int, now_s: float) -> Place | None:  # noqa: ARG002 - other cores need the time
        for position, waiting_number in enumerate(self._queue):
            if waiting_number == number:
                return Place(position, None)
        return None

    def retry_after_s(self, now_s: float) -> float:  # noqa: ARG002 - other cores need the time
        return _RETRY_AFTER_S

    def snapshot(self) -> Snapshot:
        return Snapshot(
            state=self._state,
            capacity=self._capacity,
            running=len(self._running),
            queued=dict(Counter(waiting.ticket.key_id for waiting in self._queue.values())),
            overtaken={},
        )

    def _free_at_once(self, ticket: Ticket) -> bool:
        # Whoever still waits while there is room has a key at its own limit.
        free = len(self._running) < self._capacity
        return free and isinstance(self._state, Open) and self._may_run(ticket)

    def _may_run(self, ticket: Ticket) -> bool:
        allowed = ticket.limits.running or self._limits.max_running_per_key or self._capacity
        return self._count(self._running, ticket.key_id) < allowed

    def _count(self, where: dict[int, _Waiting], key_id: str) -> int:
        return sum(waiting.ticket.key_id == key_id for waiting in where.values())

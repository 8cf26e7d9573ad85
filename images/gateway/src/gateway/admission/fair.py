"""The line's decisions: bounded, by class and age, and within a class fair in tokens by key.

With one key of one class it is first come, first served.
"""

from collections import Counter

from gateway.admission.counters import Counters
from gateway.admission.forecast import Permits, Running, Surprises, waits_s
from gateway.admission.order import Order, Waiting, ages_s, base_band, ordered
from gateway.admission.overtaking import rises
from gateway.admission.prefixes import HeldPrefixes
from gateway.admission.rates import Rates
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
    dispatches,
)
from gateway.policy import Queue

_NO_LIMIT = 2**31
_NOBODY = Order()
_RETRY_UNKNOWN_S = 5.0
# A model is loaded in minutes; clients try again twice or so.
_RETRY_HELD_S = 30.0


class FairCore:
    def __init__(self, limits: Queue) -> None:
        self._limits = limits
        self._capacity = limits.capacity
        self._state: State = Open()
        self._arrivals = 0
        self._queue: dict[int, Waiting] = {}
        self._running: dict[int, Running] = {}
        self._running_of_key: Counter[str] = Counter()
        self._counters = Counters()
        self._rates = Rates()
        self._held = HeldPrefixes()
        self._surprises = Surprises()
        self._order = Order()
        self._positions: dict[int, int] = {}
        self._overtaken: Counter[str] = Counter()

    def enqueue(self, ticket: Ticket, now_s: float) -> TurnedAway | None:
        self._age(now_s)
        is_free = self._is_free_for(ticket)
        if not is_free and (turned_away := self._turned_away(ticket)) is not None:
            return turned_away
        self._arrivals += 1
        waiting = Waiting(
            ticket=ticket,
            arrival=self._arrivals,
            since_s=now_s,
            cost=self._cost(ticket.prompt_tokens_estimate, self._rates.completion_tokens(ticket)),
            band=base_band(ticket),
        )
        self._lift(waiting)
        self._queue[ticket.number] = waiting
        self._reorder()
        if not is_free:
            self._foresee(waiting, now_s)
        return None

    def dispatch(self, now_s: float) -> list[int]:
        self._age(now_s)
        room = self._capacity - len(self._running)
        if room <= 0 or not dispatches(self._state):
            return []
        going = list(self._order.going[:room])
        for waiting in going:
            self._charge_own_key(waiting)
            self._surprises.learn(waiting, now_s - waiting.since_s)
            self._counters.charge(waiting.lane, waiting.cost)
            del self._queue[waiting.ticket.number]
            self._running[waiting.ticket.number] = Running(waiting, now_s)
            self._running_of_key[waiting.ticket.key_id] += 1
        if going:
            self._reorder()
        return [waiting.ticket.number for waiting in going]

    def expire(self, now_s: float) -> list[int]:
        over = [
            number
            for number, waiting in self._queue.items()
            if waiting.since_s + self._limits.max_wait_s <= now_s
        ]
        for number in over:
            self.leave(number, now_s)
        return over

    def next_change_s(self, now_s: float) -> float | None:
        self._age(now_s)
        after_s = self._limits.batch_promoted_after_s
        ends = (waiting.since_s + self._limits.max_wait_s for waiting in self._queue.values())
        ages = (ages_s(waiting, after_s) for waiting in self._queue.values() if waiting.band > 0)
        return min((*ends, *ages), default=None)

    def leave(self, number: int, now_s: float) -> None:
        self._age(now_s)
        del self._queue[number]
        self._surprises.forget(number)
        self._reorder()

    def finish(self, number: int, spent: Spent, now_s: float) -> None:
        self._age(now_s)
        saturated = len(self._running) >= self._capacity
        waiting = self._stopped(number).waiting
        usage = spent.usage
        # What was cached cost the engine next to nothing.
        prompt = max(0, usage.prompt_tokens - usage.cached_tokens)
        true_cost = self._cost(prompt, usage.completion_tokens)
        self._counters.correct(waiting.lane, true_cost - waiting.cost)
        self._rates.learn(waiting.ticket, spent, saturated=saturated)
        if spent.outcome != "failed":
            self._held.remember(waiting.ticket, self._capacity)
        self._reorder()

    def put_back(self, number: int, now_s: float) -> None:
        self._age(now_s)
        was = self._stopped(number)
        waiting = was.waiting
        # What it ran for was no wait.
        waiting.since_s += now_s - was.since_s
        self._counters.correct(waiting.lane, -waiting.cost)
        waiting.put_back = True
        merged = [*self._queue.values(), waiting]
        merged.sort(key=lambda one: one.arrival)
        self._queue = {one.ticket.number: one for one in merged}
        self._reorder()
        waiting.put_back = False

    def set_limits(self, limits: Queue) -> None:
        self._limits = limits
        self.set_capacity(limits.capacity)

    def set_capacity(self, capacity: int) -> None:
        self._capacity = capacity
        self._reorder()

    def set_state(self, state: State) -> None:
        self._state = state
        self._surprises.forget_all()

    def place(self, number: int, now_s: float) -> Place | None:
        self._age(now_s)
        if (position := self._positions.get(number)) is None:
            return None
        waits = self._waits_s(position + 1, now_s)
        if waits is None:
            return Place(position, None)
        one = self._queue[number]
        return Place(position, self._surprises.expected_s(one, position, waits[position]))

    def retry_after_s(self, now_s: float) -> float:
        """When the next permit is free, and a place in the line with it."""
        self._age(now_s)
        if isinstance(self._state, Hold):
            return _RETRY_HELD_S
        waits = self._waits_s(1, now_s)
        return waits[0] if waits else _RETRY_UNKNOWN_S

    def snapshot(self) -> Snapshot:
        return Snapshot(
            state=self._state,
            capacity=self._capacity,
            running=len(self._running),
            queued=dict(Counter(waiting.ticket.key_id for waiting in self._queue.values())),
            overtaken=dict(self._overtaken),
        )

    def _turned_away(self, ticket: Ticket) -> TurnedAway | None:
        if isinstance(self._state, Drain):
            return "draining"
        if len(self._queue) >= self._limits.max_queued:
            return "queue_full"
        allowed = ticket.limits.queued or self._limits.max_queued_per_key
        queued = sum(one.ticket.key_id == ticket.key_id for one in self._queue.values())
        return "key_queue_full" if queued >= allowed else None

    def _is_free_for(self, ticket: Ticket) -> bool:
        # Whoever still waits while there is room has a key at its own limit.
        if not isinstance(self._state, Open) or len(self._running) >= self._capacity:
            return False
        return self._room(ticket) > 0

    def _room(self, ticket: Ticket) -> int:
        """How many more of its key may run now."""
        return self._allowed(ticket) - self._running_of_key.get(ticket.key_id, 0)

    def _stopped(self, number: int) -> Running:
        was = self._running.pop(number)
        key_id = was.waiting.ticket.key_id
        self._running_of_key[key_id] -= 1
        if not self._running_of_key[key_id]:
            del self._running_of_key[key_id]
        return was

    def _allowed(self, ticket: Ticket) -> int:
        allowed = ticket.limits.running or self._limits.max_running_per_key or _NO_LIMIT
        # A limit that the capacity keeps anyway parks nobody.
        return _NO_LIMIT if allowed >= self._capacity else allowed

    def _cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        limits = self._limits
        return prompt_tokens * limits.prompt_weight + completion_tokens * limits.completion_weight

    def _is_hot(self, ticket: Ticket) -> bool:
        on = self._limits.hot_prefix_overtakes_tokens > 0
        return on and self._held.continued_by(ticket)

    def _lift(self, arriving: Waiting) -> None:
        queued = {waiting.lane for waiting in self._queue.values() if waiting is not arriving}
        if arriving.lane not in queued:
            self._counters.lift(arriving.lane, queued)

    def _charge_own_key(self, going: Waiting) -> None:
        first = next(one for one in self._queue.values() if one.lane == going.lane)
        if first is not going:
            first.passed_tokens += going.cost

    def _age(self, now_s: float) -> None:
        """Who has waited long is moved up a class; before whatever else happens at that time."""
        aged = False
        after_s = self._limits.batch_promoted_after_s
        for waiting in self._queue.values():
            while waiting.band > 0 and ages_s(waiting, after_s) <= now_s:
                waiting.band -= 1
                self._lift(waiting)
                aged = True
        if aged:
            self._reorder()

    def _reorder(self) -> None:
        if not self._queue:
            self._order, self._positions = _NOBODY, {}
            return
        if len(self._queue) == 1:
            # Most wait by themselves, if at all: there is nobody to compare with.
            ((number, only),) = self._queue.items()
            is_free = self._room(only.ticket) > 0
            self._order = Order([only]) if is_free else Order(parked=[only])
            self._positions = {number: 0}
            return
        for waiting in self._queue.values():
            waiting.hot = self._is_hot(waiting.ticket)
        self._order = ordered(
            self._queue.values(),
            self._counters,
            self._room,
            self._limits.hot_prefix_overtakes_tokens,
        )
        if self._positions:
            self._overtaken.update(rises(self._positions, self._order))
        self._positions = {one.ticket.number: at for at, one in enumerate(self._order.all)}

    def _foresee(self, arriving: Waiting, now_s: float) -> None:
        position = self._positions[arriving.ticket.number]
        if (waits := self._waits_s(position + 1, now_s)) is not None:
            self._surprises.remember(arriving, position, waits[position])

    def _waits_s(self, first: int, now_s: float) -> list[float] | None:
        if not dispatches(self._state):
            return None
        permits = Permits(self._running.values(), self._capacity, self._allowed)
        return waits_s(self._order.all[:first], permits, self._rates, now_s)

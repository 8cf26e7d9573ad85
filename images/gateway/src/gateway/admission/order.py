"""In which order those who wait would be served if nothing changed: the one rule of the line.

A lower band first; within it the lane with the lowest counter; within a lane first come, first
served. A request that continues a conversation whose prefix the engine still holds goes before its
own key's others, and before a lane whose counter is lower by at most `prefix_tokens`.
"""

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.admission.counters import Counters, Lane
from gateway.admission.tickets import Ticket

BACKGROUND_BAND = 2


@dataclass(slots=True, kw_only=True, eq=False)
class Waiting:
    ticket: Ticket
    arrival: int
    """Counts up over all that ever came: a place that outlasts a lost engine."""
    since_s: float
    cost: float
    """Weighted tokens that it is expected to take, fixed when it came."""
    band: int
    hot: bool = False
    passed_tokens: float = 0.0
    """What its own key was served before it, out of turn, while it was its lane's first."""
    put_back: bool = False

    @property
    def lane(self) -> Lane:
        return self.ticket.key_id, self.band


def base_band(ticket: Ticket) -> int:
    """Where a request queues before it has aged."""
    if ticket.background:
        return BACKGROUND_BAND
    return 0 if ticket.key_class == "interactive" else 1


def ages_s(waiting: Waiting, after_s: float) -> float:
    """When it moves up to the next band."""
    steps = base_band(waiting.ticket) - waiting.band + 1
    return waiting.since_s + steps * after_s


class Order(NamedTuple):
    """`going` may be dispatched as far as there is room; `parked` have a key at its own limit.

    `jumped` owe their place to a hot prefix.
    """

    going: Sequence[Waiting] = ()
    parked: Sequence[Waiting] = ()
    jumped: frozenset[int] = frozenset()

    @property
    def all(self) -> list[Waiting]:
        return [*self.going, *self.parked]


@dataclass(slots=True, eq=False)
class _Queue:
    """One lane while the order is worked out: its counter runs ahead of the true one."""

    counter: float
    waiting: deque[Waiting]
    passed_tokens: float = field(init=False)

    def __post_init__(self) -> None:
        self.passed_tokens = self.waiting[0].passed_tokens

    @property
    def rank(self) -> tuple[float, int]:
        return self.counter, self.waiting[0].arrival

    def hot(self, prefix_tokens: float) -> Waiting | None:
        """The first that may pass its own key's others, whose patience ends too."""
        found = next((waiting for waiting in self.waiting if waiting.hot), None)
        if found is self.waiting[0] or self.passed_tokens < prefix_tokens:
            return found
        return None

    def take(self, one: Waiting) -> None:
        self.counter += one.cost
        if one is self.waiting[0]:
            self.waiting.popleft()
            self.passed_tokens = self.waiting[0].passed_tokens if self.waiting else 0.0
            return
        self.waiting.remove(one)
        self.passed_tokens += one.cost


def ordered(
    queue: Collection[Waiting],
    counters: Counters,
    room: Callable[[Ticket], int],
    prefix_tokens: float,
) -> Order:
    """`room`: how many more of the ticket's key may run now."""
    bands: dict[int, dict[Lane, deque[Waiting]]] = {}
    for waiting in queue:
        bands.setdefault(waiting.band, {}).setdefault(waiting.lane, deque()).append(waiting)
    going: list[Waiting] = []
    parked: list[Waiting] = []
    jumped: set[int] = set()
    taken: dict[str, int] = {}
    for band in sorted(bands):
        for one, by_prefix in _served(bands[band], counters, prefix_tokens):
            key_id = one.ticket.key_id
            if taken.get(key_id, 0) < room(one.ticket):
                taken[key_id] = taken.get(key_id, 0) + 1
                going.append(one)
            else:
                parked.append(one)
            if by_prefix:
                jumped.add(one.ticket.number)
    return Order(going, parked, frozenset(jumped))


def _served(
    lanes: Mapping[Lane, deque[Waiting]], counters: Counters, prefix_tokens: float
) -> Iterable[tuple[Waiting, bool]]:
    """Each with whether a hot prefix chose it."""
    queues = [_Queue(counters.of(lane), waiting) for lane, waiting in lanes.items()]
    warm = [queue for queue in queues if any(waiting.hot for waiting in queue.waiting)]
    ranked = [(queue.rank, queue) for queue in queues]
    heapq.heapify(ranked)
    while ranked:
        rank, first = ranked[0]
        if not first.waiting or rank != first.rank:
            # Its rank has changed since: it was taken from out of turn.
            heapq.heappop(ranked)
            continue
        chosen, one = _hot(warm, rank[0] + prefix_tokens, prefix_tokens) or (
            first,
            first.waiting[0],
        )
        by_prefix = one is not first.waiting[0]
        chosen.take(one)
        if chosen.waiting:
            heapq.heappush(ranked, (chosen.rank, chosen))
        yield one, by_prefix


def _hot(
    warm: Iterable[_Queue], highest_counter: float, prefix_tokens: float
) -> tuple[_Queue, Waiting] | None:
    able = [
        (queue, found)
        for queue in warm
        if queue.waiting
        and queue.counter <= highest_counter
        and (found := queue.hot(prefix_tokens)) is not None
    ]
    return min(able, key=lambda pair: pair[0].rank, default=None)

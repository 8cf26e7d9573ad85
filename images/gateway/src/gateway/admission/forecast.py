"""How long those who wait are expected to wait: the permits played forward at the learned rates."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.admission.order import Waiting
from gateway.admission.rates import Rates
from gateway.admission.tickets import Ticket

_STEP = 1.01
_TOO_SHORT_TO_LEARN_FROM_S = 1.0

Stand = tuple[int, int]
"""A band, and a position's order of magnitude."""
_NOWHERE: Stand = (0, 0)


class Running(NamedTuple):
    waiting: Waiting
    since_s: float


@dataclass(frozen=True, slots=True)
class Permits:
    """Who has one, how many there are, and how many of them one key may have."""

    running: Iterable[Running]
    capacity: int
    allowed: Callable[[Ticket], int]


@dataclass(slots=True)
class Surprises:
    """How much longer waits have been than foreseen, at the median: who comes later may go first."""

    _factors: dict[Stand, float] = field(default_factory=dict)
    _foreseen: dict[int, tuple[Stand, float]] = field(default_factory=dict)

    def expected_s(self, waiting: Waiting, position: int, foreseen_s: float) -> float:
        return foreseen_s * self._factors.get(_stand(waiting, position), 1.0)

    def remember(self, waiting: Waiting, position: int, foreseen_s: float) -> None:
        self._foreseen[waiting.ticket.number] = _stand(waiting, position), foreseen_s

    def forget(self, number: int) -> None:
        self._foreseen.pop(number, None)

    def forget_all(self) -> None:
        """The line was shut or opened: what waits from here on says nothing about who overtakes."""
        self._foreseen.clear()

    def learn(self, waiting: Waiting, waited_s: float) -> None:
        """The wait of `waiting` is over."""
        where, foreseen_s = self._foreseen.pop(waiting.ticket.number, (_NOWHERE, 0.0))
        if min(foreseen_s, waited_s) >= _TOO_SHORT_TO_LEARN_FROM_S:
            factor = self._factors.get(where, 1.0)
            longer = waited_s > factor * foreseen_s
            self._factors[where] = factor * _STEP if longer else factor / _STEP


def waits_s(
    order: Sequence[Waiting], permits: Permits, rates: Rates, now_s: float
) -> list[float] | None:
    """One for each of `order`, if nobody else came; None while the engine's pace is unknown."""
    ends: dict[str, list[float]] = {}
    free: list[float] = []
    for one in permits.running:
        ticket = one.waiting.ticket
        if (remaining_s := rates.remaining_s(ticket, now_s - one.since_s)) is None:
            return None
        ends.setdefault(ticket.key_id, []).append(remaining_s)
        free.append(remaining_s)
    # Fewer permits than are running: the first that end are not replaced.
    free = sorted(free)[max(0, len(free) - permits.capacity) :]
    free += [0.0] * (permits.capacity - len(free))
    heapq.heapify(free)
    waits = []
    for waiting in order:
        if (hold_s := rates.hold_s(waiting.ticket)) is None:
            return None
        of_key = ends.setdefault(waiting.ticket.key_id, [])
        start_s = max(free[0], _key_free_s(of_key, permits.allowed(waiting.ticket)))
        heapq.heapreplace(free, start_s + hold_s)
        of_key.append(start_s + hold_s)
        waits.append(start_s)
    return waits


def _key_free_s(ends_s: Sequence[float], allowed: int) -> float:
    """When fewer than `allowed` of a key are running."""
    return 0.0 if len(ends_s) < allowed else sorted(ends_s)[-allowed]


def _stand(waiting: Waiting, position: int) -> Stand:
    return waiting.band, position.bit_length()

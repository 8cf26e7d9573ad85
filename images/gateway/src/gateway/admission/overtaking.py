"""Why somebody's position rose: every rise is counted under the name of its cause."""

from collections import Counter
from collections.abc import Mapping
from typing import Literal

from gateway.admission.order import Order, Waiting, base_band

Reason = Literal["lighter", "class", "promotion", "prefix", "limit", "returned"]


def rises(before: Mapping[int, int], after: Order) -> Counter[Reason]:
    """`before`: positions by number, before the order became `after`."""
    found: Counter[Reason] = Counter()
    parked = {waiting.ticket.number for waiting in after.parked}
    furthest: Waiting | None = None
    furthest_came_from = -1.0
    for position, waiting in enumerate(after.all):
        number = waiting.ticket.number
        came_from = before.get(number, float("inf"))
        if position > came_from and furthest is not None:
            # Somebody stands before it who did not: the one that came from furthest behind did.
            found[_reason(furthest, waiting, after, parked)] += 1
        if came_from > furthest_came_from:
            furthest, furthest_came_from = waiting, came_from
    return found


def _reason(passing: Waiting, passed: Waiting, after: Order, parked: set[int]) -> Reason:
    if passing.put_back:
        return "returned"
    if passed.ticket.number in parked and passing.ticket.number not in parked:
        return "limit"
    if passing.band < base_band(passing.ticket) and base_band(passing.ticket) > passed.band:
        return "promotion"
    if passing.band < passed.band:
        return "class"
    if passing.ticket.number in after.jumped:
        return "prefix"
    return "lighter"

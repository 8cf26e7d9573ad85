"""Virtual token counters: who has had the least of the engine goes next.

After "Fairness in Serving Large Language Models" (arXiv 2401.00588). A key has one lane in each
band of urgency, and one counter a lane: what it had as batch is not held against its chats.
"""

from collections.abc import Iterable

Lane = tuple[str, int]
"""A key's id and a band; band 0 goes first."""


class Counters:
    def __init__(self) -> None:
        self._tokens: dict[Lane, float] = {}
        self._last_served: dict[int, float] = {}

    def of(self, lane: Lane) -> float:
        return self._tokens.get(lane, 0.0)

    def lift(self, lane: Lane, queued: Iterable[Lane]) -> None:
        """Who comes back has no claim on what it did not ask for while it was away.

        `queued` are the lanes that have somebody waiting; `lane` is none of them.
        """
        band = lane[1]
        waiting = (self.of(other) for other in queued if other[1] == band)
        floor = min(waiting, default=self._last_served.get(band, 0.0))
        self._tokens[lane] = max(self.of(lane), floor)

    def charge(self, lane: Lane, tokens: float) -> None:
        """What a request is expected to cost, when it is dispatched."""
        band = lane[1]
        self._last_served[band] = max(self._last_served.get(band, 0.0), self.of(lane))
        self.correct(lane, tokens)

    def correct(self, lane: Lane, tokens: float) -> None:
        """By how much the true cost differs from what was charged."""
        self._tokens[lane] = self.of(lane) + tokens

"""How many connections there may be, and which one goes where there are too many.

A connection is a stranger's until a request on it has shown a key. Strangers have a bound of their
own: however many come, they take no place from who has a key, and a newcomer takes that of the one
who has been standing there longest. Who has shown a key is never closed in the middle of a request;
one key has a bound too, so that it takes not all places with requests that never come to their end.
"""

import logging
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Protocol

_log = logging.getLogger(__name__)

_TOLD_EVERY_S = 60.0


class Guest(Protocol):
    """One connection."""

    def is_answered(self) -> bool:
        """A request of it is under way, or bytes of its answer are."""

    def is_between_requests(self) -> bool:
        """Neither that, nor has a next one begun."""

    def dismiss(self) -> None:
        """Closes it at once."""


class Door:
    """At most `most` connections, `most_strangers` of those, and `most_of_key` of one key.

    Where nobody can be closed there may be up to `most_strangers` more, each of which is told so as
    soon as it shows a key.
    """

    def __init__(
        self, *, most: int, most_strangers: int, most_of_key: int, now_s: Callable[[], float]
    ) -> None:
        self._most = most
        self._most_strangers = most_strangers
        self._most_of_key = most_of_key
        self._now_s = now_s
        # Who came first is first.
        self._strangers: dict[Guest, None] = {}
        # Each with the key that it has shown. Who has been idle for longest comes before all others
        # that are idle.
        self._known: dict[Guest, str] = {}
        self._told_s: float | None = None
        self.dismissed = 0

    def strangers(self) -> int:
        return len(self._strangers)

    def inside(self) -> int:
        return len(self._strangers) + len(self._known)

    def enters(self, guest: Guest) -> None:
        """A new connection, for which another may be closed."""
        if len(self._strangers) >= self._most_strangers:
            # Those that are answered are told of a wrong key, or that the gateway is well.
            self._make_room(chain(self._standing(), self._strangers))
        elif self.inside() >= self._most:
            self._make_room(chain(self._standing(), self._idle()))
        self._strangers[guest] = None

    def shows_key(self, guest: Guest, key_id: str) -> bool:
        """False where there is no place for it, or for one more of that key."""
        if guest in self._known:
            return True
        if guest not in self._strangers:
            return False
        if self._is_key_full(key_id) and not self._make_room(self._idle(key_id)):
            return False
        others = (each for each in self._standing() if each is not guest)
        if self.inside() > self._most and not self._make_room(chain(others, self._idle())):
            return False
        del self._strangers[guest]
        self._known[guest] = key_id
        return True

    def rests(self, guest: Guest) -> None:
        """Its answer is complete."""
        if guest in self._known:
            self._known[guest] = self._known.pop(guest)

    def leaves(self, guest: Guest) -> None:
        self._strangers.pop(guest, None)
        self._known.pop(guest, None)

    def _standing(self) -> Iterable[Guest]:
        return (each for each in self._strangers if not each.is_answered())

    def _is_key_full(self, key_id: str) -> bool:
        return sum(of == key_id for of in self._known.values()) >= self._most_of_key

    def _idle(self, key_id: str | None = None) -> Iterable[Guest]:
        """Of that key; None: of any."""
        return (
            each
            for each, of in self._known.items()
            if key_id in (None, of) and each.is_between_requests()
        )

    def _make_room(self, who_may_go: Iterable[Guest]) -> bool:
        goes = next(iter(who_may_go), None)
        if goes is not None:
            self._dismiss(goes)
        return goes is not None

    def _dismiss(self, guest: Guest) -> None:
        self.leaves(guest)
        self.dismissed += 1
        if self._told_s is None or self._now_s() - self._told_s >= _TOLD_EVERY_S:
            self._told_s = self._now_s()
            _log.warning("too many connections: %d were closed for newcomers", self.dismissed)
        guest.dismiss()

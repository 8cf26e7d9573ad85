"""What was asked for and what was really sent."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request. `door`: "hub" or "cdn". `file`: its path in the repository, or None.

    `start`: the file's offset where the body starts. `sent`: of a file's bytes those that reached
    the client's kernel, as far as it is known when the answer has ended.
    """

    at_s: float
    door: str
    method: str
    url: str
    file: str | None
    range: str | None
    authorized: bool
    status: int | None
    start: int
    sent: int
    fault: str | None
    ended: bool


@dataclass
class Entry:
    """A request that is being answered."""

    door: str
    method: str
    url: str
    range: str | None
    authorized: bool
    file: str | None = None
    status: int | None = None
    start: int = 0
    sent: int = 0
    fault: str | None = None
    ended: bool = False
    at_s: float = field(default_factory=time.monotonic)


class Log:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: list[Entry] = []

    def begin(self, entry: Entry) -> None:
        with self._changed:
            self._entries.append(entry)
            self._changed.notify_all()

    def sent(self, entry: Entry, count: int) -> None:
        with self._changed:
            entry.sent += count
            self._changed.notify_all()

    def arrived(self, entry: Entry, count: int) -> None:
        """Of what was handed to the socket no more than `count` bytes got through."""
        with self._changed:
            entry.sent = min(entry.sent, count)

    def end(self, entry: Entry) -> None:
        with self._changed:
            entry.ended = True
            self._changed.notify_all()

    def snapshot(self) -> tuple[Seen, ...]:
        with self._changed:
            return tuple(Seen(**vars(entry)) for entry in self._entries)

    def forget(self) -> None:
        with self._changed:
            self._entries.clear()

    def wait(self, predicate: Callable[[tuple[Seen, ...]], bool], within_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: predicate(self.snapshot()), within_s)


def refetched_bytes(seen: Iterable[Seen], file: str) -> int:
    """How many bytes of `file` were sent more than once."""
    spans = sorted(
        (entry.start, entry.start + entry.sent)
        for entry in seen
        if entry.file == file and entry.sent
    )
    distinct = 0
    reached = 0
    for start, end in spans:
        distinct += max(0, end - max(start, reached))
        reached = max(reached, end)
    return sum(end - start for start, end in spans) - distinct

"""What may change a stream on its way: filters that see whole events, and none where none is asked.

A filter gets one event at a time, with its blank line, and returns the bytes that take its place:
the same, others, or none. `end` returns what it still held back.
"""

from collections.abc import Sequence
from typing import Protocol


class Filter(Protocol):
    def feed(self, event: bytes) -> bytes: ...

    def end(self) -> bytes: ...


class Events:
    """Cuts a stream into whole events, wherever its pieces are cut."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, part: bytes) -> list[bytes]:
        data = self._rest + part
        if data.find(b"\n") == len(data) - 2 and data.endswith(b"\n\n"):
            # One whole event of one line, as most come.
            self._rest = b""
            return [data]
        events = []
        start = 0
        for end in _ends(data):
            events.append(data[start:end])
            start = end
        self._rest = data[start:]
        return events

    def rest(self) -> bytes:
        """What came after the last whole event."""
        rest, self._rest = self._rest, b""
        return rest


class Chain:
    """Filters one after another. Without any, bytes pass as they come: none is held back."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        self._filters = tuple(filters)
        self._events = Events()

    def feed(self, part: bytes) -> bytes:
        if not self._filters:
            return part
        events = self._events.feed(part)
        if len(events) == 1:
            return _through(self._filters, events[0])
        return b"".join([_through(self._filters, event) for event in events])

    def end(self) -> bytes:
        """The last bytes, once the engine's stream has ended."""
        if not self._filters:
            return b""
        last = _through(self._filters, rest) if (rest := self._events.rest()) else b""
        for number, held in enumerate(self._filters, start=1):
            last += _through(self._filters[number:], held.end())
        return last


def _through(filters: Sequence[Filter], event: bytes) -> bytes:
    for number, each in enumerate(filters, start=1):
        made = each.feed(event)
        if made is not event:
            others = filters[number:]
            return b"".join([_through(others, one) for one in _events_of(made)])
    return event


def _events_of(data: bytes) -> Sequence[bytes]:
    """A filter may make several events of one, or none: the next sees them one by one."""
    if data.count(b"\n\n") <= 1 and data.endswith(b"\n\n"):
        return (data,)
    events = Events()
    whole = events.feed(data)
    if rest := events.rest():
        whole.append(rest)
    return whole


def _ends(data: bytes) -> list[int]:
    """Where the blank lines end, whichever of the two line ends the engine writes."""
    ends: list[int] = []
    at = 0
    while (found := data.find(b"\n", at)) != -1:
        if _is_blank(data, ends[-1] if ends else 0, found):
            # One blank line more than an event needs is nobody's, and stands for itself.
            at = found + 1
            ends.append(at)
            continue
        at = found + 1
        if data.startswith(b"\n", at):
            at += 1
            ends.append(at)
        elif data.startswith(b"\r\n", at):
            at += 2
            ends.append(at)
    return ends


def _is_blank(data: bytes, start: int, newline: int) -> bool:
    return newline == start or (newline == start + 1 and data.startswith(b"\r", start))

"""Which source is asked next, and when nobody is left to ask. Decides on times that it is given."""

import threading

from downloader.sources.base import Fault, Kind

# One wrong answer may come from something in between; a second and a third do not.
PATIENCE = {Kind.REFUSED: 1, Kind.DIFFERENT: 3}


class Exhausted(Exception):
    """Every source had its turn, and not a byte came."""


class Rotation:
    """One source is current for all files; one that can't have a file right is left out for that file.

    `quiet`: since when no stream did well (then the next source has its turn).
    `silent`: since when not a byte came at all (without that, nothing is ever given up).
    """

    def __init__(self, count: int, switch_after_s: float, now_s: float, *, first: int = 0) -> None:
        self.words: dict[int, Fault] = {}
        self._count = count
        self._switch_after_s = switch_after_s
        self._current = first
        self._quiet_since_s = self._silent_since_s = now_s
        self._asked_to_wait_s = 0.0
        self._had_turn: set[int] = set()
        self._left_out: dict[str, dict[int, Fault]] = {}
        self._strikes: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    @property
    def current(self) -> int:
        return self._current

    def pick(self, path: str) -> int | None:
        """None: no source can have this file right."""
        with self._lock:
            return next(iter(self._usable(path, self._current)), None)

    def verdicts(self, path: str) -> dict[int, Fault]:
        """Why each source was left out for this file."""
        with self._lock:
            return dict(self._left_out.get(path, {}))

    def leave_out(self, path: str, source: int, fault: Fault) -> None:
        with self._lock:
            self._left_out.setdefault(path, {})[source] = fault

    def bytes_came(self, now_s: float) -> None:
        self._silent_since_s = now_s

    def went_well(self, now_s: float) -> None:
        """A part was finished, or a stream kept above its floor."""
        with self._lock:
            self._quiet_since_s = self._silent_since_s = now_s
            self._asked_to_wait_s = 0.0
            self._had_turn.clear()

    def faulted(self, path: str, source: int, fault: Fault, now_s: float) -> None:
        """Raises Exhausted."""
        with self._lock:
            self.words[source] = fault
            if fault.kind is Kind.LATER:
                self._asked_to_wait_s = max(self._asked_to_wait_s, fault.retry_after_s or 0.0)
                if self._is_too_long(self._quiet_since_s, now_s):
                    self._next_turn(path, source, now_s)
                return
            strikes = self._strikes[path, source] = self._strikes.get((path, source), 0) + 1
            if strikes >= PATIENCE[fault.kind]:
                self._left_out.setdefault(path, {})[source] = fault

    def _next_turn(self, path: str, source: int, now_s: float) -> None:
        self._had_turn.add(source)
        others = self._usable(path, source + 1)
        fresh = [each for each in others if each not in self._had_turn]
        if not fresh:
            if self._is_too_long(self._silent_since_s, now_s):
                raise Exhausted
            self._had_turn = {source}
            fresh = others
        self._current = fresh[0]
        self._quiet_since_s = now_s
        self._asked_to_wait_s = 0.0

    def _is_too_long(self, since_s: float, now_s: float) -> bool:
        return now_s - since_s >= self._switch_after_s + self._asked_to_wait_s

    def _usable(self, path: str, first: int) -> list[int]:
        ring = [(first + step) % self._count for step in range(self._count)]
        return [each for each in ring if each not in self._left_out.get(path, {})]

"""How all threads of a run end together: the first reason wins, and everybody who waits is woken."""

import threading


class Halted(Exception):
    """The run is ending: leave everything as it is."""


class Halt:
    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self.reason: BaseException | None = None

    def now(self, reason: BaseException | None = None) -> None:
        with self._lock:
            if not self._event.is_set():
                self.reason = reason
        self._event.set()

    def asked(self) -> bool:
        return self._event.is_set()

    def check(self) -> None:
        if self._event.is_set():
            raise Halted

    def wait(self, span_s: float) -> None:
        if self._event.wait(span_s):
            raise Halted

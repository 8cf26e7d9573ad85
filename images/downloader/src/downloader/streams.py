"""The threads that fetch: as many connections as there are streams, over all files together."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic

from downloader.halt import Halted
from downloader.transfer import Hopeless, Part, Stream, Surroundings

STOP_WITHIN_S = 0.7


class Streams:
    """Parts are taken in the order in which they were put in; `urgent` ones come first."""

    def __init__(self, around: Surroundings, given_up: Callable[[Part], None]) -> None:
        self._around = around
        self._given_up = given_up
        self._waiting: deque[Part] = deque()
        self._urgent: deque[Part] = deque()
        self._active = 0
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._work, name=f"stream-{number}", daemon=True)
            for number in range(around.tuning.streams)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def put(self, parts: Iterable[Part], *, urgent: bool = False) -> None:
        with self._changed:
            (self._urgent if urgent else self._waiting).extend(parts)
            self._changed.notify_all()

    def drop_waiting(self) -> None:
        with self._changed:
            self._waiting.clear()

    @property
    def idle(self) -> bool:
        with self._changed:
            return not (self._active or self._waiting or self._urgent)

    def stop(self) -> bool:
        """The run is halted: whether all threads have ended. One that resolves a name can't be woken."""
        with self._changed:
            self._changed.notify_all()
        deadline_s = monotonic() + STOP_WITHIN_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline_s - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        halt = self._around.halt
        stream = Stream(self._around)
        try:
            while True:
                part = self._take()
                try:
                    stream.transfer(part)
                except Hopeless:
                    self._given_up(part)
                finally:
                    part.done()
                    with self._changed:
                        self._active -= 1
        except Halted:
            return
        except BaseException as error:  # noqa: BLE001 -- the main thread raises it
            halt.now(error)

    def _take(self) -> Part:
        with self._changed:
            while True:
                self._around.halt.check()
                if self._urgent or self._waiting:
                    self._active += 1
                    return (self._urgent or self._waiting).popleft()
                self._changed.wait(0.2)

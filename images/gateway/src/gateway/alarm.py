"""A limit on the time of a block of code, as `asyncio.timeout` is from Python 3.11 on."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType

from typing_extensions import Self


class Alarm(ABC):
    """Cancels the task that is in its block when it rings, and raises an error in the place of that.

    A subclass says in `_rings` what it is about, and may set it anew: the timer costs a microsecond,
    where `wait_for` costs a task.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._set(None)
        if self._error is not None and isinstance(error, asyncio.CancelledError):
            raise self._error from None

    def _set(self, at_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if at_s is None else self._loop.call_at(at_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._error = self._rings()
        if self._error is not None and self._task is not None:
            self._task.cancel()

    @abstractmethod
    def _rings(self) -> Exception | None:
        """The error, or None after having set the alarm anew."""


class Within(Alarm):
    def __init__(self, seconds: float, late: Callable[[], Exception]) -> None:
        """`late` makes the error, which most never need."""
        super().__init__()
        self._late = late
        self._set(self._loop.time() + seconds)

    def _rings(self) -> Exception:
        return self._late()

"""A future that wakes its task at once, and not in the loop's next turn."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any


class Prompt(asyncio.Future[None]):
    """For one task to await, and for a callback of the loop to keep: there no other task runs.

    Between two turns the loop asks the kernel for news. With one event of a stream in each that is
    a good part of what an event costs.
    """

    _wake: Callable[[asyncio.Future[None]], object] | None = None
    _context: Context | None = None

    def add_done_callback(  # type: ignore[override] # one callback, of a task
        self, fn: Callable[[asyncio.Future[None]], object], *, context: Context | None = None
    ) -> None:
        if self._wake is not None or self.done():
            message = "a promise for one task"
            raise RuntimeError(message)
        self._wake, self._context = fn, context

    def cancel(self, msg: Any | None = None) -> bool:
        cancelled = super().cancel(msg)
        # Not at once: here it is another task that runs.
        if cancelled and self._wake is not None:
            self.get_loop().call_soon(self._wake, self, context=self._context)
        return cancelled

    def keep(self) -> None:
        self.set_result(None)
        if self._wake is not None:
            if self._context is None:
                self._wake(self)
            else:
                self._context.run(self._wake, self)

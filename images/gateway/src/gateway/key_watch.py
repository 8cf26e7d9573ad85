"""Watches the keys of requests that are here: a key that is good no more takes its requests along."""

import asyncio
from collections.abc import Callable

from gateway.caller import Caller
from gateway.errors import ApiError
from gateway.keys import Standing

# Reading whether a file has changed costs some microseconds, and an end a second late nobody.
_EVERY_S = 1.0

End = Callable[[ApiError], None]


class KeyWatch:
    def __init__(self, keys: Standing) -> None:
        self._keys = keys
        self._here: dict[End, Caller] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, caller: Caller, end: End) -> None:
        """Until `forget`: calls `end` with the reason, once, if that key is revoked or expires."""
        self._here[end] = caller
        if self._timer is None:
            self._set_timer()

    def forget(self, end: End) -> None:
        self._here.pop(end, None)

    def look(self) -> int:
        """Ends what is to be ended, by the keys as they are known now; returns how many that were."""
        lost = [
            (end, error)
            for end, caller in self._here.items()
            if (error := self._keys.objection(caller))
        ]
        for end, error in lost:
            del self._here[end]
            end(error)
        return len(lost)

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        if self._here:
            self._keys.refresh()
            self.look()
            self._set_timer()

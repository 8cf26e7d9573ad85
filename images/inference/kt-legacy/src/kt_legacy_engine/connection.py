"""What the kernel knows of a client's connection, before the event loop has heard of it."""

import asyncio
import select
from collections.abc import Callable, MutableMapping
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_SOCKET = "socket"


class Protocol(H11Protocol):
    """uvicorn's, whose requests know their connection's socket, in `scope["state"]`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as there
        super().connection_made(transport)
        self.app_state = {**self.app_state, _SOCKET: transport.get_extra_info("socket")}


def hung_up(scope: MutableMapping[str, Any]) -> Callable[[], bool]:
    """Whether the client has closed its end, asked from any thread: no round through the loop.

    Once our end is closed too its number may be another's. Then the loop has heard of it, and tells.
    """
    socket = scope["state"][_SOCKET]

    def asked() -> bool:
        if (number := socket.fileno()) < 0:
            return True
        news = select.poll()
        # Beside this, an end by a reset is always told.
        news.register(number, select.POLLRDHUP)
        return bool(news.poll(0))

    return asked

"""/metrics on a port of its own, for the network inside: no key, one small HTTP/1.0 server."""

import asyncio
from collections.abc import Awaitable, Callable

_REQUEST_WITHIN_S = 5.0


class Scrape:
    def __init__(self, render: Callable[[], Awaitable[bytes]], content_type: str) -> None:
        self._render = render
        self._content_type = content_type
        self._server: asyncio.AbstractServer | None = None

    async def open(self, host: str, port: int) -> int:
        """Returns the port, which the system chooses where `port` is 0."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=8192)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_WITHIN_S)
            writer.write(await self._answer(head))
            await writer.drain()
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.LimitOverrunError):
            # A scraper that does not ask, or does not listen, asks again.
            pass
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        if not head.startswith(b"GET /metrics "):
            return b"HTTP/1.0 404 Not Found\r\ncontent-length: 0\r\n\r\n"
        body = await self._render()
        lines = ("HTTP/1.0 200 OK", f"content-type: {self._content_type}", "", "")
        return "\r\n".join(lines).encode("ascii") + body

"""One HTTP/1.1 connection to the engine: a request goes out, its answer is read as it comes.

Knows nothing of what is asked.
"""

import asyncio
import select

import httptools

from gateway.errors import Headers
from gateway.prompt import Prompt

# What an engine may be ahead of a client that reads slowly.
_MOST_UNREAD_BYTES = 2**18


class Connection(asyncio.Protocol):
    def __init__(self, broken: type[Exception]) -> None:
        """`broken` is raised, with words, where an answer does not come or not to its end."""
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._error: Exception | None = None
        self._closed = False
        self._spoiled = False
        self._waiter: Prompt | None = None
        self._paused = False
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._unread_bytes = 0
        self._head_complete = False
        self._complete = False
        self._keeps_alive = False
        self.status = 0
        self.headers: Headers = []

    # --- for who asks ---

    async def send(self, head: bytes, body: bytes | None) -> None:
        """Returns when `status` and `headers` are those of the answer."""
        self._begin()
        if body is not None and len(body) <= _MOST_UNREAD_BYTES:
            # One packet, where the body is short.
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            if body is not None:
                self._transport.write(body)
        while not self._head_complete:
            await self._news()

    async def read_some(self) -> bytes:
        """The next bytes of the body, as soon as there are any; empty at its end."""
        while not self._parts:
            if self._complete:
                return b""
            await self._news()
        some = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._unread_bytes = 0
        if self._paused and not self._closed:
            self._paused = False
            self._transport.resume_reading()
        return some

    def may_be_used_again(self) -> bool:
        """True after an answer that has ended as both sides agree it did."""
        return (
            self._complete
            and not self._parts
            and not self._spoiled
            and not self._closed
            and not self._paused
            and self._keeps_alive
            and not self._transport.get_write_buffer_size()
        )

    def is_open(self) -> bool:
        """Asks the kernel too: an end that has arrived may not have come to the loop yet."""
        if self._closed or self._spoiled or self._transport.is_closing():
            return False
        return not self._arrived.poll(0)

    def close(self) -> None:
        """At once, whatever was not sent or read."""
        self._transport.abort()

    def _news(self) -> Prompt:
        if self._error is not None:
            raise self._error
        self._waiter = Prompt(loop=self._loop)
        return self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.keep()

    def _fail(self, message: str) -> None:
        if not self._complete and self._error is None:
            self._error = self._broken(message)
        self._spoiled = True
        self._transport.abort()
        self._wake()

    # --- what the loop calls ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # TCP
        self._transport = transport
        self._arrived = select.poll()
        self._arrived.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if self._complete:
            self._fail("the engine spoke without being asked")
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"the engine's answer is no HTTP: {error}")
            return
        if self._unread_bytes > _MOST_UNREAD_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if exc is None and self._head_complete and not self._is_framed():
            self._complete = True
        elif not self._complete and self._error is None:
            self._error = self._broken(str(exc or "the engine closed the connection"))
        # It holds this object, and would keep it until a collection.
        del self._parser
        self._wake()

    def _is_framed(self) -> bool:
        """False: the end of the connection is the end of the body."""
        return any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)

    # --- what the parser calls ---

    def on_message_begin(self) -> None:
        if self._complete:
            message = "a second answer"
            raise ValueError(message)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._head_complete = self.status >= 200  # noqa: PLR2004 - below that an answer still follows

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._unread_bytes += len(body)

    def on_message_complete(self) -> None:
        if self._head_complete:
            self._complete = True
            # Asked later, the parser speaks of the message after this one.
            self._keeps_alive = self._parser.should_keep_alive()
        else:
            self.headers.clear()

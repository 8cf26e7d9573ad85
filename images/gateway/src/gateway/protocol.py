"""uvicorn's HTTP/1.1 with what it leaves open: a deadline and a size for headers, errors in JSON."""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.errors import BAD_REQUEST, ApiError, OpenAIVoice, header_too_large

MAX_HEADER_BYTES = 64 * 2**10


class CarefulProtocol(HttpToolsProtocol):
    """A client that sends its header byte by byte, or without end, is let go.

    Also one that has connected and says nothing; a kept-alive connection may be idle for longer.
    """

    def __init__(self, *, header_timeout_s: float, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._header_timeout_s = header_timeout_s
        self._header_timer: asyncio.TimerHandle | None = None
        self._in_header = True
        self._header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn does
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_header = True
        self._header_bytes = 0
        self._start_timer()

    def on_headers_complete(self) -> None:
        self._in_header = False
        self._stop_timer()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_header:
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
                self._refuse(header_too_large(MAX_HEADER_BYTES))

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words are plain text
        self._refuse(BAD_REQUEST)

    def _refuse(self, error: ApiError) -> None:
        if self._is_answering():
            # Its bytes would land in the middle of an answer.
            self.transport.abort()
            return
        refusal = OpenAIVoice().refusal(error)
        lines = [b"HTTP/1.1 %d %s" % (error.status, HTTPStatus(error.status).phrase.encode())]
        lines += [name + b": " + value for name, value in refusal.headers]
        lines += [b"connection: close", b"", refusal.body]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _start_timer(self) -> None:
        self._stop_timer()
        self._header_timer = self.loop.call_later(self._header_timeout_s, self._too_late)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _too_late(self) -> None:
        if self._is_answering():
            # Half a pipelined request behind an answer that goes on: it ends the connection then.
            self.cycle.keep_alive = False
        else:
            self.transport.close()

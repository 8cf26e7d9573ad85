"""uvicorn's HTTP/1.1 with what it leaves open: deadline and size of headers, dubious framing."""

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.arrival_errors import BAD_REQUEST, UPGRADE_WITH_BODY, header_too_large
from gateway.asgi import BODY_IS_HERE, ON_LEAVING, SHOWS_KEY
from gateway.door import Door
from gateway.errors import ApiError, OpenAIVoice, Refused
from gateway.joined_head import JoinedHead

MAX_HEADER_BYTES = 64 * 2**10


class CarefulProtocol(HttpToolsProtocol):
    """A client that sends its header byte by byte, or without end, is let go.

    Also one that has connected and says nothing; a kept-alive connection may be idle for longer,
    as long as there is room at the `door`.

    Requests are answered one at a time. What comes behind one is let go unread, and the connection
    ends with the answer, as HTTP allows (RFC 9112, 9.3.2): uvicorn would stop reading until then,
    and nobody would notice that the client has left.
    """

    def __init__(self, *, header_timeout_s: float, door: Door, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._header_timeout_s = header_timeout_s
        self._door = door
        self._header_timer: asyncio.TimerHandle | None = None
        self._in_header = True
        self._header_bytes = 0
        self._piece_bytes = 0
        self._beside_body_bytes = 0
        self._refused = BAD_REQUEST
        self._is_deaf = False
        self._leaving: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn does
        super().connection_made(cast(asyncio.Transport, JoinedHead(transport, self.loop)))
        self._start_timer()
        self._door.enters(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._door.leaves(self)
        super().connection_lost(exc)
        if self._leaving is not None:
            self._leaving()

    def on_message_begin(self) -> None:
        if self._is_answering():
            self._is_deaf = True
            self.cycle.keep_alive = False
            self._reject(BAD_REQUEST)
        super().on_message_begin()
        self._in_header = True
        self._header_bytes = 0
        if self._header_timer is not None:
            # What was silent until now has its whole time for a header.
            self._start_timer()

    def on_headers_complete(self) -> None:
        self._in_header = False
        self._beside_body_bytes = 0
        self._stop_timer()
        # Most come in one piece that is shorter than that, and need no counting.
        if self._header_bytes + self._piece_bytes > MAX_HEADER_BYTES:
            held_bytes = sum(len(name) + len(value) for name, value in self.headers)
            if held_bytes > MAX_HEADER_BYTES:
                self._reject(header_too_large(MAX_HEADER_BYTES))
        objection = _objection(
            self.parser.get_http_version(), self.headers, upgrades=self.parser.should_upgrade()
        )
        if objection is not None:
            self._reject(objection)
        self.scope[SHOWS_KEY] = partial(self._door.shows_key, self)  # type: ignore[literal-required] # our own
        self.scope[ON_LEAVING] = self._on_leaving  # type: ignore[literal-required] # our own
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._beside_body_bytes = 0

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.scope[BODY_IS_HERE] = True  # type: ignore[literal-required] # our own

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._door.rests(self)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        was_in_header = self._in_header
        self._piece_bytes = len(data)
        self._beside_body_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_header:
            self._wait_for_the_rest(len(data) if was_in_header else 0)
        elif self._beside_body_bytes > MAX_HEADER_BYTES:
            # Trailers, which the parser keeps: also those of a request that was refused already.
            self.transport.close()

    def _wait_for_the_rest(self, unfinished_bytes: int) -> None:
        """Of a header, of which the parser keeps what has come."""
        self._header_bytes += unfinished_bytes
        if self._header_bytes > MAX_HEADER_BYTES:
            self._refuse(header_too_large(MAX_HEADER_BYTES))
        elif self._header_timer is None:
            self._start_timer()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words are plain text
        if not self._is_deaf:
            self._refuse(self._refused)

    def _reject(self, error: ApiError) -> None:
        """From the parser's callbacks: what they raise comes back as send_400_response."""
        self._refused = error
        raise Refused(error)

    def _refuse(self, error: ApiError) -> None:
        refusal = OpenAIVoice().refusal(error)
        lines = [b"HTTP/1.1 %d %s" % (error.status, HTTPStatus(error.status).phrase.encode())]
        lines += [name + b": " + value for name, value in refusal.headers]
        lines += [b"connection: close", b"", refusal.body]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()

    def _on_leaving(self, leaving: Callable[[], None] | None) -> None:
        self._leaving = leaving
        if leaving is None:
            return
        # A long body may have stopped the reading, without which no end is seen.
        self.flow.resume_reading()
        if self.cycle.disconnected:
            self.loop.call_soon(leaving)

    # --- what the door asks ---

    def is_answered(self) -> bool:
        return self._is_answering()

    def is_between_requests(self) -> bool:
        is_sent = not self.transport.get_write_buffer_size()
        return is_sent and not self._is_answering() and self._header_timer is None

    def dismiss(self) -> None:
        self.transport.abort()

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _start_timer(self) -> None:
        self._stop_timer()
        self._header_timer = self.loop.call_later(self._header_timeout_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def _objection(
    version: str, headers: list[tuple[bytes, bytes]], *, upgrades: bool
) -> ApiError | None:
    """What a proxy before this one may have read in another way than the parser here."""
    hosts = 0
    codings: list[bytes] = []
    has_length = False
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            has_length = True
        elif name == b"transfer-encoding":
            codings.append(value.strip().lower())
    if version not in {"1.0", "1.1"} or (version == "1.1" and hosts != 1):
        return BAD_REQUEST
    if codings and (version == "1.0" or codings != [b"chunked"]):
        return BAD_REQUEST
    if upgrades and (codings or has_length):
        # The parser takes the body for the other protocol's: it would be lost.
        return UPGRADE_WITH_BODY
    return None

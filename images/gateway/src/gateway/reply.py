"""One response being sent to the client, and how far it has come."""

from collections.abc import Awaitable

from starlette.types import Send

from gateway.asgi import send_refusal
from gateway.errors import ApiError, Headers, Voice

_TAIL_BYTES = 64
_STREAM_HEADERS: Headers = [
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class Reply:
    """An error is a status while nothing was sent, and the last event of the stream after that."""

    def __init__(self, send: Send, voice: Voice) -> None:
        self._send = send
        self._voice = voice
        self._tail = b""
        self.more_headers: Headers = []
        """Of the gateway's own, known before the answer."""
        self.started = False
        # Set before the last send: the server reports a disconnect after a complete response too.
        self.complete = False

    async def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        length = (b"content-length", str(len(body)).encode("ascii"))
        await self._start(status, [*headers, length])
        await self._finish(body)

    async def start_stream(self, status: int, headers: Headers) -> None:
        await self._start(status, [*headers, *_STREAM_HEADERS])

    def send_some(self, body: bytes) -> Awaitable[None]:
        self._tail = body if len(body) >= _TAIL_BYTES else (self._tail + body)[-_TAIL_BYTES:]
        return self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end_stream(self) -> None:
        await self._finish(b"")

    async def fail(self, error: ApiError) -> None:
        if self.started:
            # Or the error would be glued to half an event.
            await self._finish(
                self._voice.between(self._tail[-_TAIL_BYTES:]) + self._voice.event(error)
            )
            return
        self.started = self.complete = True
        await send_refusal(self._send, self._voice.refusal(error))

    def _start(self, status: int, headers: Headers) -> Awaitable[None]:
        self.started = True
        headers = [*headers, *self.more_headers]
        return self._send({"type": "http.response.start", "status": status, "headers": headers})

    def _finish(self, body: bytes) -> Awaitable[None]:
        self.complete = True
        return self._send({"type": "http.response.body", "body": body, "more_body": False})

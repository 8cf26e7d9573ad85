"""Gives every request an id, counts it and writes one log line about it: never its content."""

import re
import time
from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.asgi import header
from gateway.ids import new_id
from gateway.logs import say
from gateway.metrics import Metrics

_USABLE_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")

CLIENT_LEFT = 499  # nginx's number for it; it is never sent


class Observed:
    """The outermost layer. `known_paths` bounds the metric's labels, whatever is asked for."""

    def __init__(self, app: ASGIApp, metrics: Metrics, known_paths: frozenset[str]) -> None:
        self._app = app
        self._metrics = metrics
        self._known_paths = known_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(header(scope, b"x-request-id"))
        scope["request_id"] = request_id
        status = CLIENT_LEFT
        complete = False
        sent_bytes = 0
        started_s = time.monotonic()

        def observed_send(message: Message) -> Awaitable[None]:
            nonlocal status, sent_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                named = (b"x-request-id", request_id.encode("ascii"))
                return send({**message, "headers": [*message["headers"], named]})
            sent_bytes += len(message.get("body", b""))
            # No layer more around each of a stream's many parts.
            return send(message) if message.get("more_body") else observed_end(message)

        async def observed_end(message: Message) -> None:
            nonlocal complete
            await send(message)
            complete = message["type"] == "http.response.body"

        try:
            await self._app(scope, receive, observed_send)
        finally:
            path = scope["path"] if scope["path"] in self._known_paths else "other"
            self._metrics.requests.of(path, str(status)).inc()
            if path not in ("/healthz", "/readyz", "/metrics"):
                fields = {
                    "request": request_id,
                    "key": scope["caller"].key_id if "caller" in scope else None,
                    "method": scope["method"],
                    "path": path,
                    "status": status,
                    "complete": complete,
                    "bytes": sent_bytes,
                    "seconds": round(time.monotonic() - started_s, 3),
                }
                say(__name__, "answered", fields)


def _request_id(offered: bytes | None) -> str:
    if offered is not None and _USABLE_ID.fullmatch(offered):
        return offered.decode("ascii")
    return new_id()

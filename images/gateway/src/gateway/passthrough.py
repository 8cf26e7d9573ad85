"""The hot path: a request to the engine, its answer back, byte for byte, while the client stays."""

import asyncio
import logging
import time

from starlette.types import Receive, Scope, Send

from gateway.asgi import header
from gateway.errors import (
    ENGINE_CUT_OFF,
    ENGINE_REFUSED_GATEWAY,
    ENGINE_UNAVAILABLE,
    SHUTTING_DOWN,
    ApiError,
    body_too_large,
)
from gateway.metrics import Metrics
from gateway.reply import Reply
from gateway.upstream import (
    Answer,
    Engine,
    EngineCutOffError,
    EngineError,
    EngineRefusedGatewayError,
    EngineUnreachableError,
)

_log = logging.getLogger(__name__)

_REQUEST_HEADERS = (b"content-type", b"accept")
# The engine is asked for no content-encoding; should it use one all the same, the client must know.
_RESPONSE_HEADERS = frozenset({b"content-type", b"content-encoding", b"retry-after"})


class ClientLeftError(Exception):
    """The client closed its connection while its request body was still arriving."""


class BodyTooLargeError(Exception):
    """The request body is larger than this gateway takes."""


class Passthrough:
    """An ASGI application that passes `method` `path` on; a POST carries the client's body."""

    def __init__(
        self, engine: Engine, metrics: Metrics, *, method: str, path: str, max_body_bytes: int
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._method = method
        self._path = path
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = Reply(send)
        try:
            body = await _read_body(scope, receive, self._max_body_bytes)
        except ClientLeftError:
            self._metrics.cancelled.labels("uploading").inc()
            return
        except BodyTooLargeError:
            await reply.fail(body_too_large(self._max_body_bytes))
            return
        with self._metrics.running.track_inprogress():
            await self._while_client_stays(scope, receive, reply, body)

    async def _while_client_stays(
        self, scope: Scope, receive: Receive, reply: Reply, body: bytes
    ) -> None:
        """Runs the exchange beside a watch on the client, from before the engine is asked."""
        exchange = asyncio.create_task(self._exchange(scope, reply, body))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({exchange, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if exchange.done() or reply.complete:
                await exchange
                return
            self._metrics.cancelled.labels("streaming" if reply.started else "waiting").inc()
        except asyncio.CancelledError:
            # The server cancels what still runs when its grace is over. Nobody awaits this task, so
            # the cancellation ends here, with an error that the client sees.
            await _stop(exchange)
            if not reply.complete:
                await reply.fail(SHUTTING_DOWN)
        finally:
            await _stop(exchange)
            await _stop(leaving)

    async def _exchange(self, scope: Scope, reply: Reply, body: bytes) -> None:
        asked_s = time.monotonic()
        try:
            async with self._engine.ask(
                self._method,
                self._path,
                headers=_forwarded(scope),
                body=body if self._method == "POST" else None,
            ) as answer:
                await self._relay(answer, reply, asked_s)
        except EngineError as error:
            blame = _blame(error)
            self._metrics.upstream_errors.labels(blame.code).inc()
            _log.warning("request=%s %s: %s", scope["request_id"], blame.code, error)
            await reply.fail(blame)

    async def _relay(self, answer: Answer, reply: Reply, asked_s: float) -> None:
        headers = [(name, value) for name, value in answer.headers if name in _RESPONSE_HEADERS]
        # The status goes out with the first byte: until then an engine that dies is still a 502.
        part = await answer.read_some()
        self._metrics.first_byte_s.labels(self._path).observe(time.monotonic() - asked_s)
        if not answer.is_stream:
            await reply.send_whole(answer.status, headers, part + await answer.read_all())
            return
        while part:
            if not reply.started:
                await reply.start_stream(answer.status, headers)
            await reply.send_some(part)
            part = await answer.read_some()
        if not reply.saw_done:
            # Clients take a stream that just ends for success.
            message = "the stream ended without [DONE]"
            raise EngineCutOffError(message)
        await reply.end_stream()


def _blame(error: EngineError) -> ApiError:
    match error:
        case EngineUnreachableError():
            return ENGINE_UNAVAILABLE
        case EngineRefusedGatewayError():
            return ENGINE_REFUSED_GATEWAY
        case _:
            return ENGINE_CUT_OFF


def _forwarded(scope: Scope) -> dict[str, str]:
    """The few client headers that reach the engine: whatever is not named here does not."""
    found = ((name, header(scope, name)) for name in _REQUEST_HEADERS)
    kept = {name.decode("ascii"): value.decode("latin-1") for name, value in found if value}
    return {**kept, "x-request-id": scope["request_id"]}


async def _read_body(scope: Scope, receive: Receive, limit_bytes: int) -> bytes:
    announced = header(scope, b"content-length")
    if announced is not None and int(announced) > limit_bytes:
        raise BodyTooLargeError
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        body += message["body"]
        if len(body) > limit_bytes:
            raise BodyTooLargeError
        more = message["more_body"]
    return bytes(body)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

"""The one path of every request: read, shape, wait in line, ask the engine, relay, account.

Runs beside a watch on the client from the moment its body is read, so that a client that leaves
takes its request along in every phase.
"""

import asyncio
import logging
from dataclasses import dataclass
from http import HTTPStatus

from starlette.types import Receive, Scope, Send

from gateway.accounts import Accounts
from gateway.asgi import header
from gateway.body import ClientLeftError, read_body
from gateway.caller import caller_of
from gateway.dialects.dialect import Dialect
from gateway.engine_request import EngineRequest
from gateway.errors import (
    ENGINE_CUT_OFF,
    ENGINE_REFUSED_GATEWAY,
    ENGINE_UNAVAILABLE,
    SHUTTING_DOWN,
    ApiError,
    Headers,
    Refused,
)
from gateway.metrics import Metrics
from gateway.policy import Policy
from gateway.reading import understood
from gateway.relay import Relay
from gateway.reloaded import Reloaded
from gateway.reply import Reply
from gateway.upstream import (
    Engine,
    EngineError,
    EngineRefusedGatewayError,
    EngineUnreachableError,
)
from gateway.waiting import WaitingRoom

_log = logging.getLogger(__name__)

_REQUEST_HEADERS = (b"content-type", b"accept")
_JSON: Headers = [(b"content-type", b"application/json")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What all routes share."""

    engine: Engine
    policy: Reloaded[Policy]
    room: WaitingRoom
    accounts: Accounts
    metrics: Metrics
    max_body_bytes: int


class Exchange:
    """An ASGI application that serves one dialect's route."""

    def __init__(self, dialect: Dialect, services: Services) -> None:
        self._dialect = dialect
        self._services = services
        self._metrics = services.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = Reply(send, self._dialect)
        policy = self._services.policy.current()
        try:
            body = await read_body(scope, receive, self._services.max_body_bytes)
            asked = await understood(self._dialect, body, policy)
        except ClientLeftError:
            self._metrics.cancelled.labels("uploading").inc()
            return
        except Refused as refused:
            await reply.fail(refused.error)
            return
        if asked.answer is not None:
            await reply.send_whole(HTTPStatus.OK, _JSON, asked.answer)
            return
        await self._while_client_stays(scope, receive, reply, asked, policy)

    async def _while_client_stays(
        self, scope: Scope, receive: Receive, reply: Reply, asked: EngineRequest, policy: Policy
    ) -> None:
        relay = Relay(self._dialect, asked, policy, reply)
        serving = asyncio.create_task(self._serve(scope, relay))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done() or reply.complete:
                await serving
                return
            self._metrics.cancelled.labels(relay.phase).inc()
        except asyncio.CancelledError:
            # The server cancels what still runs when its grace is over. Nobody awaits this task, so
            # the cancellation ends here, with an error that the client sees.
            await _stop(serving)
            if not reply.complete:
                await reply.fail(SHUTTING_DOWN)
        finally:
            await _stop(serving)
            await _stop(leaving)

    async def _serve(self, scope: Scope, relay: Relay) -> None:
        try:
            if relay.asked.admitted:
                await self._with_permit(scope, relay)
            else:
                await self._ask(scope, relay)
        except Refused as refused:
            await relay.reply.fail(refused.error)
        except EngineError as error:
            blame = _blame(error)
            self._metrics.upstream_errors.labels(blame.code).inc()
            _log.warning("request=%s %s: %s", scope["request_id"], blame.code, error)
            await relay.reply.fail(blame)

    async def _with_permit(self, scope: Scope, relay: Relay) -> None:
        caller = caller_of(scope)
        self._services.accounts.charge(caller, relay.asked)
        permit = await self._services.room.permit(
            relay.asked,
            request_id=scope["request_id"],
            caller=caller,
            reply=relay.reply,
            dialect=relay.dialect,
            policy=relay.policy,
        )
        with (
            self._metrics.running.track_inprogress(),
            self._services.accounts.held(permit, caller, relay),
        ):
            await self._ask(scope, relay)

    async def _ask(self, scope: Scope, relay: Relay) -> None:
        relay.ask_begins()
        async with self._services.engine.ask(
            relay.asked.method,
            relay.asked.path,
            headers=_forwarded(scope),
            body=relay.asked.body,
            connect_timeout_s=relay.policy.timeouts.connect_s,
        ) as answer:
            await relay.pass_on(answer, self._metrics.first_byte_s.labels(relay.dialect.path))


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


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

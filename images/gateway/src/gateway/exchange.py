"""The one path of every request: read, shape, wait in line, ask the engine, relay, account.

Runs beside a watch on the client from the moment its body is read, so that a client that leaves
takes its request along in every phase.
"""

import asyncio
import logging
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from starlette.types import Receive, Scope, Send

from gateway.accounts import Accounts
from gateway.admission.line import Permit
from gateway.aftermath import new_engine_id, with_engine_id
from gateway.asgi import header
from gateway.body import BodyRoom, ClientLeftError, Shelf, read_body
from gateway.caller import Caller, caller_of
from gateway.deadlines import EngineLateError, Patience
from gateway.dialects.dialect import Dialect
from gateway.dialects.openai import splits_thinking
from gateway.engine_counting import EngineCounter, asks_engine
from gateway.engine_faults import (
    ENGINE_BUSY,
    ENGINE_CUT_OFF,
    ENGINE_REFUSED_GATEWAY,
    ENGINE_UNAVAILABLE,
    connect_late,
)
from gateway.engine_request import EngineRequest
from gateway.engine_watch import EngineWatch
from gateway.errors import INTERNAL, SHUTTING_DOWN, ApiError, Headers, Refused
from gateway.metrics import Metrics
from gateway.policy import Policy
from gateway.reading import understood
from gateway.relay import Relay
from gateway.reloaded import Reloaded
from gateway.reply import Reply
from gateway.upstream import (
    Engine,
    EngineBusyError,
    EngineConnectLateError,
    EngineCutOffError,
    EngineError,
    EngineRefusedGatewayError,
    EngineUnreachableError,
)
from gateway.waiting import WaitingRoom

_log = logging.getLogger(__name__)

_REQUEST_HEADERS = (b"content-type", b"accept")
_BACKGROUND = b"x-background-task"
_JSON: Headers = [(b"content-type", b"application/json")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What all routes share."""

    engine: Engine
    counter: EngineCounter
    policy: Reloaded[Policy]
    room: WaitingRoom
    accounts: Accounts
    metrics: Metrics
    max_body_bytes: int
    body_timeout_s: float
    bodies: BodyRoom
    watch: EngineWatch
    prefilling: set[Relay] = field(default_factory=set)
    """Answers that the engine has not begun: each new one waits for all of them."""


class Exchange:
    """An ASGI application that serves one dialect's route."""

    def __init__(self, dialect: Dialect, services: Services) -> None:
        self._dialect = dialect
        self._services = services
        self._metrics = services.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = Reply(send, self._dialect)
        try:
            with self._services.bodies.shelf() as shelf:
                await self._answer(scope, receive, reply, shelf)
        except Exception:  # noqa: BLE001 - whatever it is, the client is told
            _log.exception("failed", extra={"fields": _named(scope)})
            if not reply.complete:
                await reply.fail(INTERNAL)

    async def _answer(self, scope: Scope, receive: Receive, reply: Reply, shelf: Shelf) -> None:
        policy = self._services.policy.current()
        try:
            body = await read_body(
                scope,
                receive,
                shelf,
                limit_bytes=self._services.max_body_bytes,
                within_s=self._services.body_timeout_s,
            )
            asked = _ranked(
                scope, await understood(self._dialect, body, policy, self._services.counter)
            )
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
        phase = None

        def stop(_: object) -> None:
            nonlocal phase
            # The server reports a disconnect after a complete answer too.
            if not reply.complete and serving is not None:
                phase = relay.phase
                serving.cancel()

        serving = asyncio.current_task()
        leaving = asyncio.create_task(_disconnected(receive))
        leaving.add_done_callback(stop)
        # Nobody awaits this task, so each cancellation ends here.
        try:
            await self._serve(scope, relay)
        except asyncio.CancelledError:
            if phase is None and not reply.complete:
                # The server cancels what still runs when its grace is over: the client is told.
                await reply.fail(SHUTTING_DOWN)
        finally:
            leaving.remove_done_callback(stop)
            # Nobody waits for it: there is nothing that it would have to put away.
            leaving.cancel()
            if phase is not None:
                self._metrics.cancelled.labels(phase).inc()

    async def _serve(self, scope: Scope, relay: Relay) -> None:
        try:
            if relay.asked.admitted:
                await self._with_permit(scope, relay)
            else:
                await self._ask(scope, relay)
        except Refused as refused:
            await relay.reply.fail(refused.error)
        except EngineError as error:
            blame = _blame(error, relay.policy)
            self._metrics.upstream_errors.labels(blame.code).inc()
            said = {**_named(scope), "code": blame.code}
            _log.warning("%s", error, extra={"fields": said})
            await relay.reply.fail(blame)

    async def _with_permit(self, scope: Scope, relay: Relay) -> None:
        caller = caller_of(scope)
        self._services.accounts.charge(caller, relay.asked)
        permit: Permit | None = None
        try:
            permit = await self._services.room.permit(
                relay.asked,
                request_id=scope["request_id"],
                caller=caller,
                reply=relay.reply,
                dialect=relay.dialect,
                policy=relay.policy,
            )
            while not await self._asked(scope, relay, caller, permit):
                lost, permit = permit, None
                permit = await self._services.room.again(
                    lost, reply=relay.reply, dialect=relay.dialect, policy=relay.policy
                )
        finally:
            if permit is None:
                self._services.accounts.refund(caller, relay.asked)

    async def _asked(self, scope: Scope, relay: Relay, caller: Caller, permit: Permit) -> bool:
        """False when the engine was lost and the request may wait for it to be back."""
        with self._services.accounts.held(permit, caller, relay) as held:
            try:
                await self._ask(scope, relay)
                self._services.watch.answered()
            except EngineError as error:
                if not self._is_lost(error, relay):
                    raise
                self._services.watch.lost()
                if not relay.may_ask_again(sent=not isinstance(error, EngineUnreachableError)):
                    raise
                _log.info("waits again: %s", error, extra={"fields": _named(scope)})
                held.kept = True
                relay.put_back()
        return not held.kept

    def _is_lost(self, error: EngineError, relay: Relay) -> bool:
        lost = (EngineUnreachableError, EngineCutOffError, EngineBusyError)
        return relay.policy.queue.hold_on_engine_loss and isinstance(error, lost)

    async def _ask(self, scope: Scope, relay: Relay) -> None:
        body = relay.asked.body
        if relay.asked.admitted and relay.policy.capabilities.abort_path is not None:
            relay.engine_id = new_engine_id()
            body = with_engine_id(relay.asked, relay.engine_id)
        if asks_engine(relay.policy) and splits_thinking(relay.asked, relay.policy):
            # Here it surely is the engine that will answer.
            opens = await self._services.counter.opens_thinking(relay.asked.parsed, relay.policy)
            relay.asked = replace(relay.asked, opens_thinking=opens)
        prefilling = self._services.prefilling
        prefilling.add(relay)
        prompts = (each.asked.prompt_tokens_estimate for each in prefilling if each.is_silent)
        relay.ask_begins()
        try:
            limits = relay.policy.timeouts
            with Patience(limits, sum(prompts), stream=relay.asked.stream) as patience:
                async with self._services.engine.ask(
                    relay.asked.method,
                    relay.asked.path,
                    headers=_forwarded(scope),
                    body=body,
                    connect_timeout_s=relay.policy.timeouts.connect_s,
                ) as answer:
                    await relay.pass_on(answer, patience, self._metrics)
        finally:
            prefilling.discard(relay)


def _blame(error: EngineError, policy: Policy) -> ApiError:
    match error:
        case EngineLateError():
            return error.error
        case EngineConnectLateError():
            return connect_late(policy.timeouts.connect_s)
        case EngineUnreachableError():
            return ENGINE_UNAVAILABLE
        case EngineBusyError():
            return ENGINE_BUSY
        case EngineRefusedGatewayError():
            return ENGINE_REFUSED_GATEWAY
        case _:
            return ENGINE_CUT_OFF


def _ranked(scope: Scope, asked: EngineRequest) -> EngineRequest:
    """Any client may say that nobody waits for this one: it only lowers itself."""
    return replace(asked, background=True) if header(scope, _BACKGROUND) else asked


def _named(scope: Scope) -> dict[str, str]:
    return {"request": scope["request_id"]}


def _forwarded(scope: Scope) -> dict[str, str]:
    """The few client headers that reach the engine: whatever is not named here does not."""
    found = ((name, header(scope, name)) for name in _REQUEST_HEADERS)
    kept = {name.decode("ascii"): value.decode("latin-1") for name, value in found if value}
    return {**kept, "x-request-id": scope["request_id"]}


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

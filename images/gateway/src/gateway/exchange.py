"""The one path of every request: read, shape, wait in line, ask the engine, relay, account.

Runs beside a watch on the client from the moment its body is read, so that a client that leaves
takes its request along in every phase.
"""

import asyncio
import logging
from http import HTTPStatus

from starlette.types import Receive, Scope, Send

from gateway.admission.line import Permit
from gateway.asgi import ON_LEAVING, header
from gateway.asking import ask, blame
from gateway.body import ClientLeftError, Shelf, read_body
from gateway.caller import Caller, caller_of
from gateway.dialects.dialect import Dialect
from gateway.engine_request import EngineRequest
from gateway.errors import INTERNAL, SHUTTING_DOWN, ApiError, Headers, Refused
from gateway.reading import understood
from gateway.relay import Relay
from gateway.reply import Reply
from gateway.services import Services
from gateway.upstream import (
    EngineBusyError,
    EngineCutOffError,
    EngineError,
    EngineUnreachableError,
)

_log = logging.getLogger(__name__)

_BACKGROUND = b"x-background-task"
_JSON: Headers = [(b"content-type", b"application/json")]


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
        try:
            body = await read_body(
                scope,
                receive,
                shelf,
                limit_bytes=self._services.max_body_bytes,
                within_s=self._services.body_timeout_s,
            )
            policy = self._services.policy.current()
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
        await self._while_client_stays(scope, Relay(self._dialect, body, asked, policy, reply))

    async def _while_client_stays(self, scope: Scope, relay: Relay) -> None:
        reply = relay.reply
        phase: str | None = None
        # What is cancelled otherwise is what still runs when the server's grace is over.
        reason = SHUTTING_DOWN

        def stop() -> None:
            nonlocal phase
            if not reply.complete and serving is not None:
                phase = relay.phase
                serving.cancel()

        def end(error: ApiError) -> None:
            nonlocal reason
            if not reply.complete and serving is not None:
                reason = error
                _log.info("ended", extra={"fields": {**_named(scope), "code": error.code}})
                serving.cancel()

        serving = asyncio.current_task()
        on_leaving = scope[ON_LEAVING]
        on_leaving(stop)
        # Nobody awaits this task, so each cancellation ends here.
        try:
            self._services.key_watch.begin(caller_of(scope), end)
            await self._serve(scope, relay)
        except asyncio.CancelledError:
            if phase is None and not reply.complete:
                await reply.fail(reason)
        finally:
            on_leaving(None)
            self._services.key_watch.forget(end)
            if phase is not None:
                self._metrics.cancelled.labels(phase).inc()

    async def _serve(self, scope: Scope, relay: Relay) -> None:
        try:
            if relay.asked.admitted:
                await self._with_permit(scope, relay)
            else:
                await ask(scope, relay, self._services)
        except Refused as refused:
            await relay.reply.fail(refused.error)
        except EngineError as error:
            said = blame(error, relay.policy)
            self._metrics.upstream_errors.labels(said.code).inc()
            _log.warning("%s", error, extra={"fields": {**_named(scope), "code": said.code}})
            await relay.reply.fail(said)

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
                if permit.place is not None:
                    await self._read_anew(relay)
                await ask(scope, relay, self._services)
                self._services.watch.answered()
            except EngineError as error:
                if not self._is_lost(error, relay):
                    raise
                self._services.watch.lost()
                if not relay.may_ask_again(sent=error.may_have_begun):
                    raise
                _log.info("waits again: %s", error, extra={"fields": _named(scope)})
                held.kept = True
                relay.put_back()
        return not held.kept

    async def _read_anew(self, relay: Relay) -> None:
        """By the profile in force: while a request waits the engine may be exchanged for another."""
        policy = self._services.policy.current()
        if policy is not relay.policy:
            found = await understood(relay.dialect, relay.body, policy, self._services.counter)
            relay.reads(found, policy)

    def _is_lost(self, error: EngineError, relay: Relay) -> bool:
        lost = (EngineUnreachableError, EngineCutOffError, EngineBusyError)
        return relay.policy.queue.hold_on_engine_loss and isinstance(error, lost)


def _ranked(scope: Scope, asked: EngineRequest) -> EngineRequest:
    """Any client may say that nobody waits for this one: it only lowers itself."""
    return asked._replace(background=True) if header(scope, _BACKGROUND) else asked


def _named(scope: Scope) -> dict[str, str]:
    return {"request": scope["request_id"]}

"""What follows an answer that the gateway left before its end: the engine is made to stop.

Its connection is closed by then. Where it takes aborts, it is told by the id that the gateway gave
the request; where it does not, or says nothing, it is given the profile's grace. Only after that is
the permit free: the next request would find a dying one beside it. No client waits for any of this.
"""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus

import orjson

from gateway.engine_request import EngineRequest
from gateway.ids import new_id
from gateway.policy import Capabilities
from gateway.upstream import Engine, EngineError

_log = logging.getLogger(__name__)

_ABORT_WITHIN_S = 2.0


class Aftermath:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._running: set[asyncio.Task[None]] = set()

    def begin(
        self, engine_id: str | None, capabilities: Capabilities, then: Callable[[], None]
    ) -> None:
        """Calls `then` when the engine is idle again: at once if there is nothing to wait for."""
        abort_path = capabilities.abort_path if engine_id is not None else None
        if abort_path is None and not capabilities.abort_grace_s:
            then()
            return
        stopping = asyncio.create_task(
            self._stopped(abort_path, engine_id or "", capabilities.abort_grace_s)
        )
        self._running.add(stopping)
        # Not in the task: one that is cancelled before its first step runs none of its code.
        stopping.add_done_callback(lambda _: then())
        stopping.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Ends all waits; their permits are released."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _stopped(self, abort_path: str | None, engine_id: str, grace_s: float) -> None:
        if abort_path is not None and await self._aborted(abort_path, engine_id):
            return
        await asyncio.sleep(grace_s)

    async def _aborted(self, path: str, engine_id: str) -> bool:
        try:
            status = await asyncio.wait_for(self._abort(path, engine_id), _ABORT_WITHIN_S)
        except (EngineError, asyncio.TimeoutError) as error:
            _log.warning("the engine did not take an abort: %r", error)
            return False
        return status == HTTPStatus.OK

    async def _abort(self, path: str, engine_id: str) -> int:
        async with self._engine.ask(
            "POST",
            path,
            headers={"content-type": "application/json"},
            body=orjson.dumps({"rid": engine_id}),
            connect_timeout_s=_ABORT_WITHIN_S,
        ) as answer:
            await answer.read_all()
            return answer.status


def new_engine_id() -> str:
    """Ours and not to be guessed: an engine that aborts by prefix must not hit a neighbour.

    All are of one length, so that none begins another.
    """
    return new_id()


def with_engine_id(asked: EngineRequest, engine_id: str) -> bytes | None:
    """The body under that id; the client's bytes stay what they are before it."""
    if asked.body is None:
        return None
    opened = asked.body.rstrip()[:-1]
    comma = b"," if asked.parsed else b""
    return opened + comma + b'"rid":"' + engine_id.encode("ascii") + b'"}'

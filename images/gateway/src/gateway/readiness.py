"""Can a request be answered now? The engine's own /health, asked with little patience."""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus

import orjson

from gateway.upstream import Engine, EngineError


@dataclass(frozen=True, slots=True)
class Readiness:
    ready: bool
    reason: str = ""

    def body(self) -> bytes:
        return orjson.dumps(self)


STOPPING = Readiness(ready=False, reason="the gateway is shutting down")


async def readiness(engine: Engine, *, timeout_s: float) -> Readiness:
    try:
        return _judge(await asyncio.wait_for(_status(engine, timeout_s), timeout_s))
    except asyncio.TimeoutError:
        return Readiness(ready=False, reason=f"the engine's /health is silent for {timeout_s:g} s")
    except EngineError as error:
        return Readiness(ready=False, reason=f"the engine can't be reached: {error}")


async def _status(engine: Engine, timeout_s: float) -> int:
    async with engine.ask(
        "GET", "/health", headers={}, body=None, connect_timeout_s=timeout_s
    ) as answer:
        return answer.status


def _judge(status: int) -> Readiness:
    if status == HTTPStatus.OK:
        return Readiness(ready=True)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return Readiness(ready=False, reason="the engine is still loading, or unwell: it says 503")
    return Readiness(ready=False, reason=f"the engine's /health says {status}")

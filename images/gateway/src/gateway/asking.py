"""Asking the engine for one answer, and what its client is told where the engine fails."""

from starlette.types import Scope

from gateway.aftermath import new_engine_id, with_engine_id
from gateway.asgi import header
from gateway.deadlines import EngineLateError, Patience
from gateway.dialects.openai import splits_thinking
from gateway.engine_counting import asks_engine
from gateway.engine_faults import (
    ENGINE_BUSY,
    ENGINE_CUT_OFF,
    ENGINE_REFUSED_GATEWAY,
    ENGINE_UNAVAILABLE,
    connect_late,
)
from gateway.engine_request import EngineRequest
from gateway.errors import ApiError
from gateway.policy import Policy
from gateway.relay import Relay, UnstreamableError
from gateway.services import Services
from gateway.upstream import (
    EngineBusyError,
    EngineConnectLateError,
    EngineError,
    EngineRefusedGatewayError,
    EngineUnreachableError,
)
from gateway.whole_answers import unstreamed

_REQUEST_HEADERS = (b"content-type", b"accept")
_JSON = "application/json"


async def ask(scope: Scope, relay: Relay, services: Services) -> None:
    """Returns when the client has the engine's answer; EngineError where there is none."""
    if asks_engine(relay.policy) and splits_thinking(relay.asked, relay.policy):
        # Here it surely is the engine that will answer.
        opens = await services.counter.opens_thinking(relay.asked.parsed, relay.policy)
        relay.asked = relay.asked._replace(opens_thinking=opens)
    headers = _forwarded(scope, relay.asked)
    try:
        await _ask(headers, relay, services)
    except UnstreamableError:
        relay.asked = unstreamed(relay.asked)
        await _ask(headers, relay, services)


async def _ask(headers: dict[str, str], relay: Relay, services: Services) -> None:
    asked, limits = relay.asked, relay.policy.timeouts
    body = asked.body
    if asked.admitted and relay.policy.capabilities.abort_path is not None:
        relay.engine_id = new_engine_id()
        body = with_engine_id(asked, relay.engine_id)
    prefilling = services.prefilling
    prefilling.add(relay)
    prompts = (each.asked.prompt_tokens_estimate for each in prefilling if each.is_silent)
    relay.ask_begins()
    try:
        with Patience(limits, sum(prompts), stream=asked.streams) as patience:
            async with services.engine.ask(
                asked.method,
                asked.path,
                headers=headers,
                body=body,
                connect_timeout_s=limits.connect_s,
            ) as answer:
                await relay.pass_on(answer, patience, services.metrics)
    finally:
        prefilling.discard(relay)


def blame(error: EngineError, policy: Policy) -> ApiError:
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


def _forwarded(scope: Scope, asked: EngineRequest) -> dict[str, str]:
    """The few client headers that reach the engine: whatever is not named here does not."""
    found = ((name, header(scope, name)) for name in _REQUEST_HEADERS)
    kept = {name.decode("ascii"): value.decode("latin-1") for name, value in found if value}
    if asked.body is not None and not kept.get("content-type", "").startswith(_JSON):
        # It was read as JSON: engines refuse what says otherwise, as `curl -d` does.
        kept["content-type"] = _JSON
    return {**kept, "x-request-id": scope["request_id"]}

"""`GET /v1/queue`: where a key's own requests stand."""

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admission.line import Line, Standing
from gateway.admission.tickets import Hold
from gateway.caller import caller_of
from gateway.errors import CALLER, ApiError, OpenAIVoice
from gateway.sign import rounded_s

QUEUE_PATH = "/v1/queue"


def queue_routes(line: Line) -> list[Route]:
    async def all_of_key(request: Request) -> Response:
        standings = line.of_key(caller_of(request.scope).key_id)
        return _json({**_state(line), "data": [_said(each) for each in standings]})

    async def one_of_key(request: Request) -> Response:
        request_id = request.path_params["request_id"]
        for each in line.of_key(caller_of(request.scope).key_id):
            if each.ticket.request_id == request_id:
                return _json(_said(each))
        return _not_here()

    return [
        Route(QUEUE_PATH, all_of_key, methods=["GET"]),
        Route(QUEUE_PATH + "/{request_id}", one_of_key, methods=["GET"]),
    ]


def _state(line: Line) -> dict[str, Any]:
    state = line.snapshot().state
    said = {"object": "list", "state": type(state).__name__.lower()}
    if isinstance(state, Hold):
        return {**said, "reason": state.reason, "progress": state.progress}
    return said


def _said(standing: Standing) -> dict[str, Any]:
    place = standing.place
    return {
        "object": "queue.place",
        "request_id": standing.ticket.request_id,
        "state": "running" if place is None else "queued",
        "position": None if place is None else place.position,
        "eta_s": None if place is None or place.eta_s is None else rounded_s(place.eta_s),
        "since_s": round(standing.since_s, 1),
    }


def _not_here() -> Response:
    error = ApiError(
        status=404,
        code="request_not_queued",
        message="This API key has no such request waiting or running.",
        kind=CALLER,
    )
    return Response(OpenAIVoice().refusal(error).body, 404, media_type="application/json")


def _json(said: dict[str, Any]) -> Response:
    return Response(orjson.dumps(said), media_type="application/json")

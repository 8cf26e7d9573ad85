"""Errors that are the engine's: it is away, late, busy or gone."""

from gateway.errors import SERVER, ApiError, not_now

ENGINE_UNAVAILABLE = ApiError(
    status=503,
    code="engine_unavailable",
    message="The gateway can't reach the engine, which may be starting: try again shortly.",
    kind=SERVER,
    headers=(("retry-after", "5"),),
)
ENGINE_CUT_OFF = ApiError(
    status=502,
    code="engine_cut_off",
    message="The engine's answer ended before it was complete.",
    kind=SERVER,
)
ENGINE_REFUSED_GATEWAY = ApiError(
    status=502,
    code="engine_refused_gateway",
    message="The engine does not accept the gateway's own key. Your key is fine; tell the admin.",
    kind=SERVER,
)
ENGINE_BUSY = ApiError(
    status=503,
    code="engine_busy",
    message="The engine's own line is full: try again shortly.",
    kind=SERVER,
    headers=(("retry-after", "5"),),
)

CODES = (
    ENGINE_UNAVAILABLE.code,
    ENGINE_CUT_OFF.code,
    ENGINE_REFUSED_GATEWAY.code,
    ENGINE_BUSY.code,
    "connect_timeout",
    "first_token_timeout",
    "idle_timeout",
    "total_timeout",
)
"""All there are."""


def connect_late(seconds: float) -> ApiError:
    message = f"The engine did not take a connection within {seconds:g} s."
    return not_now("connect_timeout", message, 5)


def _engine_late(code: str, message: str) -> ApiError:
    return ApiError(status=504, code=code, message=message, kind=SERVER)


def first_token_late(seconds: float) -> ApiError:
    return _engine_late("first_token_timeout", f"The engine gave no token within {seconds:g} s.")


def idle_late(seconds: float) -> ApiError:
    message = f"The engine was silent for {seconds:g} s in the middle of its answer."
    return _engine_late("idle_timeout", message)


def total_late(seconds: float) -> ApiError:
    return _engine_late("total_timeout", f"The answer took longer than {seconds:g} s.")

"""Errors the gateway itself answers with, in the shape OpenAI clients understand."""

from dataclasses import dataclass

import orjson

Headers = list[tuple[bytes, bytes]]

CALLER = "invalid_request_error"
SERVER = "server_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiError:
    """One refusal or failure, in one envelope: a response body, or the last event of a stream."""

    status: int
    code: str
    message: str
    kind: str
    headers: tuple[tuple[str, str], ...] = ()

    def body(self) -> bytes:
        envelope = {"message": self.message, "type": self.kind, "param": None, "code": self.code}
        return orjson.dumps({"error": envelope})

    def event(self) -> bytes:
        return b"data: " + self.body() + b"\n\n"

    def response_headers(self) -> Headers:
        own = [(name.encode("ascii"), value.encode("ascii")) for name, value in self.headers]
        length = str(len(self.body())).encode("ascii")
        return [(b"content-type", b"application/json"), (b"content-length", length), *own]


NO_KEY = ApiError(
    status=401,
    code="invalid_api_key",
    message="Missing or wrong API key. Send it as 'Authorization: Bearer KEY'.",
    kind=CALLER,
    headers=(("www-authenticate", "Bearer"),),
)
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
SHUTTING_DOWN = ApiError(
    status=503,
    code="shutting_down",
    message="The gateway is shutting down and could not wait for this answer any longer.",
    kind=SERVER,
    headers=(("retry-after", "5"),),
)
INTERNAL = ApiError(
    status=500, code="internal_error", message="The gateway failed on this request.", kind=SERVER
)


def body_too_large(limit_bytes: int) -> ApiError:
    return ApiError(
        status=413,
        code="request_too_large",
        message=f"The request body is larger than {limit_bytes} bytes.",
        kind=CALLER,
    )


def unknown_path(method: str, path: str) -> ApiError:
    return ApiError(
        status=404, code="unknown_url", message=f"There is no {method} {path} here.", kind=CALLER
    )


def wrong_method(method: str, path: str, allowed: str) -> ApiError:
    return ApiError(
        status=405,
        code="method_not_allowed",
        message=f"{path} does not answer {method}; it answers {allowed}.",
        kind=CALLER,
        headers=(("allow", allowed),),
    )

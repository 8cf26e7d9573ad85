"""What an error is and how it is said, by default as OpenAI does; and the errors of the gateway itself.

Those of the engine are in `engine_faults`, of a request on its way in `arrival_errors`, of what it
asks for in `request_errors`.
"""

from dataclasses import dataclass
from typing import Protocol

import orjson

Headers = list[tuple[bytes, bytes]]

CALLER = "invalid_request_error"
SERVER = "server_error"
LIMIT = "rate_limit_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiError:
    """One refusal or failure, before any dialect has put it into its own shape."""

    status: int
    code: str
    message: str
    kind: str
    headers: tuple[tuple[str, str], ...] = ()
    param: str | None = None

    def own_headers(self) -> Headers:
        return [(name.encode("ascii"), value.encode("ascii")) for name, value in self.headers]


class Refused(Exception):
    """A request ends here with `error`; whoever answers says it in the caller's dialect."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.code)
        self.error = error


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as a whole response."""

    status: int
    headers: Headers
    body: bytes


class Voice(Protocol):
    """How one API says that something went wrong."""

    def refusal(self, error: ApiError) -> Refusal: ...

    def event(self, error: ApiError) -> bytes:
        """The last event of a stream that has begun."""

    def between(self, tail: bytes) -> bytes:
        """What has to come after `tail` before an event can: it may be cut in the middle of one."""


class OpenAIVoice:
    """One envelope: a response body, or the last event of a stream."""

    def refusal(self, error: ApiError) -> Refusal:
        body = self._body(error)
        length = str(len(body)).encode("ascii")
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        return Refusal(error.status, [*headers, *error.own_headers()], body)

    def event(self, error: ApiError) -> bytes:
        return b"data: " + self._body(error) + b"\n\n"

    def between(self, tail: bytes) -> bytes:
        return b"" if tail.endswith((b"\n\n", b"\r\n\r\n")) else b"\n\n"

    def _body(self, error: ApiError) -> bytes:
        return openai_envelope(error)


def openai_envelope(error: ApiError) -> bytes:
    envelope = {
        "message": error.message,
        "type": error.kind,
        "param": error.param,
        "code": error.code,
    }
    return orjson.dumps({"error": envelope})


NO_KEY = ApiError(
    status=401,
    code="invalid_api_key",
    message="Missing or wrong API key. Send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.",
    kind=CALLER,
    headers=(("www-authenticate", "Bearer"),),
)
KEY_EXPIRED = ApiError(
    status=401,
    code="key_expired",
    message="This API key has expired. Ask the admin for a new one.",
    kind=CALLER,
    headers=(("www-authenticate", "Bearer"),),
)
KEY_REVOKED = ApiError(
    status=401,
    code="key_revoked",
    message="This API key was revoked. Ask the admin for a new one.",
    kind=CALLER,
    headers=(("www-authenticate", "Bearer"),),
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


def too_many(code: str, message: str, retry_after_s: float) -> ApiError:
    """A 429 that clients try again: they do not wait longer than two minutes."""
    seconds = max(1, min(120, round(retry_after_s)))
    return ApiError(
        status=429, code=code, message=message, kind=LIMIT, headers=(("retry-after", str(seconds)),)
    )


def not_now(code: str, message: str, retry_after_s: float) -> ApiError:
    """A 503 that clients try again."""
    seconds = max(1, min(120, round(retry_after_s)))
    return ApiError(
        status=503,
        code=code,
        message=message,
        kind=SERVER,
        headers=(("retry-after", str(seconds)),),
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

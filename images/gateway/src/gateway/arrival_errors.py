"""Errors in how a request arrives or its answer is taken, whatever it asks for."""

from gateway.errors import CALLER, SERVER, ApiError

NOT_JSON = ApiError(
    status=400,
    code="invalid_json",
    message="The request body is not a JSON object in UTF-8.",
    kind=CALLER,
)


TOO_DEEP = ApiError(
    status=400,
    code="invalid_json",
    message="The request body is nested too deeply, or of too many objects.",
    kind=CALLER,
)


TOO_MANY_CONNECTIONS = ApiError(
    status=503,
    code="too_many_connections",
    message="All connections of the gateway, or of this API key, are at work: try again shortly.",
    kind=SERVER,
    headers=(("retry-after", "5"), ("connection", "close")),
)


def body_late(seconds: float) -> ApiError:
    """Not a 408: clients would send the same again at once."""
    return ApiError(
        status=400,
        code="body_timeout",
        message=f"The request did not arrive within {seconds:g} s.",
        kind=CALLER,
        headers=(("connection", "close"),),
    )


BAD_REQUEST = ApiError(
    status=400, code="bad_request", message="This is no valid HTTP request.", kind=CALLER
)


UPGRADE_WITH_BODY = ApiError(
    status=400,
    code="upgrade_unsupported",
    message="There is HTTP/1.1 only: set the client to it, so that it asks for no upgrade.",
    kind=CALLER,
)


def header_too_large(limit_bytes: int) -> ApiError:
    return ApiError(
        status=431,
        code="header_too_large",
        message=f"The request's header is larger than {limit_bytes} bytes.",
        kind=CALLER,
    )


def body_too_large(limit_bytes: int) -> ApiError:
    return ApiError(
        status=413,
        code="request_too_large",
        message=f"The request body is larger than {limit_bytes} bytes.",
        kind=CALLER,
    )


def client_late(seconds: float) -> ApiError:
    """For whoever reads on after all."""
    return ApiError(
        status=400,
        code="client_timeout",
        message=f"The client took nothing of its answer for {seconds:g} s.",
        kind=CALLER,
    )

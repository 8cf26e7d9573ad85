"""Errors in what a request asks for: each names the field."""

import orjson

from gateway.errors import CALLER, ApiError

_SHOWN_CHARACTERS = 60


def invalid_value(param: str, expected: str, value: object) -> ApiError:
    """`expected` reads after "must be"; of what was sent only the beginning is repeated."""
    said = orjson.dumps(value).decode()
    shown = said if len(said) <= _SHOWN_CHARACTERS else said[:_SHOWN_CHARACTERS] + "..."
    return ApiError(
        status=400,
        code="invalid_value",
        message=f"'{param}' must be {expected}, not {shown}.",
        kind=CALLER,
        param=param,
    )


def missing(param: str) -> ApiError:
    return ApiError(
        status=400,
        code="invalid_value",
        message=f"'{param}' is missing.",
        kind=CALLER,
        param=param,
    )


def unknown(param: str) -> ApiError:
    """The first words are those of OpenAI's own server."""
    shown = param if len(param) <= _SHOWN_CHARACTERS else param[:_SHOWN_CHARACTERS] + "..."
    return ApiError(
        status=400,
        code="unknown_parameter",
        message=f"Unrecognized request argument supplied: {shown}. "
        "Leave it out: GET /openapi.json names what a request may hold.",
        kind=CALLER,
        param=shown,
    )


def model_not_found(asked: str, there_is: str) -> ApiError:
    return ApiError(
        status=404,
        code="model_not_found",
        message=f"There is no model '{asked[:_SHOWN_CHARACTERS]}' here; there is '{there_is}'.",
        kind=CALLER,
        param="model",
    )


def unsupported(param: str) -> ApiError:
    return ApiError(
        status=400,
        code="unsupported_parameter",
        message=f"This model's engine does not support '{param}'.",
        kind=CALLER,
        param=param,
    )


def context_length_exceeded(param: str, *, context: int, prompt: int, granted: int) -> ApiError:
    asks = f" and max_tokens asks for {granted}" if granted else ""
    return ApiError(
        status=400,
        code="context_length_exceeded",
        message=f"This model's context is {context} tokens; the prompt has {prompt}{asks}.",
        kind=CALLER,
        param=param,
    )

"""The engine's own refusal as one of ours, for dialects to say in their words."""

from http import HTTPStatus

from gateway.engine_words import words_of
from gateway.errors import CALLER, LIMIT, SERVER, ApiError


def engine_error(status: int, body: bytes) -> ApiError:
    kind = CALLER if status < HTTPStatus.INTERNAL_SERVER_ERROR else SERVER
    return ApiError(
        status=status,
        code="engine_refused",
        message=words_of(body) or f"The engine refused this request with {status}.",
        kind=LIMIT if status == HTTPStatus.TOO_MANY_REQUESTS else kind,
    )

"""An engine's own refusal as one of ours: its words, under a code that clients know."""

from http import HTTPStatus

from gateway.engine_words import overflow_in, words_of
from gateway.errors import CALLER, LIMIT, SERVER, ApiError
from gateway.request_errors import context_length_exceeded


def engine_error(status: int, body: bytes, param: str = "messages") -> ApiError:
    """`param`: what is too long where the engine says that the prompt is."""
    if (overflow := overflow_in(body)) is not None:
        prompt, context = overflow
        return context_length_exceeded(param, context=context, prompt=prompt, granted=0)
    kind = CALLER if status < HTTPStatus.INTERNAL_SERVER_ERROR else SERVER
    return ApiError(
        status=status,
        code="engine_refused",
        message=words_of(body) or f"The engine refused this request with {status}.",
        kind=LIMIT if status == HTTPStatus.TOO_MANY_REQUESTS else kind,
    )


def engine_refused(status: int, body: bytes, param: str = "messages") -> ApiError:
    """The same for a stream whose 200 is out already, or which hides it in one."""
    if overflow_in(body) is not None:
        return engine_error(status, body, param)
    said = words_of(body) or "it gave no reason"
    return ApiError(
        status=status,
        code="engine_refused",
        message=f"The engine refused this request with {status}: {said}",
        kind=CALLER if status < HTTPStatus.INTERNAL_SERVER_ERROR else SERVER,
    )

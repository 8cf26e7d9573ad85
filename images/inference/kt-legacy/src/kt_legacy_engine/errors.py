"""What the server refuses or fails at, in the shape OpenAI's clients understand."""

import json

CALLER = "invalid_request_error"
SERVER = "server_error"
_SERVERS_FAULT = 500


class ApiError(Exception):
    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        self.envelope = {
            "error": {
                "message": message,
                "type": CALLER if status < _SERVERS_FAULT else SERVER,
                "param": param,
                "code": code,
            }
        }

    def body(self) -> bytes:
        return json.dumps(self.envelope, ensure_ascii=False).encode()


def no_key() -> ApiError:
    return ApiError(
        401,
        "invalid_api_key",
        "Missing or wrong API key. Send it as 'Authorization: Bearer KEY'.",
        headers=(("www-authenticate", "Bearer"),),
    )


def busy() -> ApiError:
    return ApiError(
        503,
        "engine_busy",
        "The engine works on another request, and on one at a time.",
        headers=(("retry-after", "1"),),
    )


def not_ready() -> ApiError:
    return ApiError(
        503,
        "engine_loading",
        "The engine is loading the model: see /health.",
        headers=(("retry-after", "10"),),
    )


def stopping() -> ApiError:
    return ApiError(
        503,
        "engine_stopping",
        "The engine is being stopped.",
        headers=(("retry-after", "30"),),
    )


def engine_gone() -> ApiError:
    return ApiError(
        503,
        "engine_gone",
        "The engine ended while it worked on this request; it will be started again.",
        headers=(("retry-after", "30"),),
    )


def prompt_too_long(prompt_tokens: int, context_tokens: int, param: str) -> ApiError:
    return ApiError(
        400,
        "context_length_exceeded",
        f"The prompt has {prompt_tokens} tokens. The context has {context_tokens}, of which at "
        "least one must be left for the reply.",
        param=param,
    )


def bad_request(message: str, param: str | None = None) -> ApiError:
    return ApiError(400, "invalid_request", message, param=param)


def unknown_model(name: str, served: str) -> ApiError:
    return ApiError(
        404, "model_not_found", f"There is no model {name!r} here, only {served!r}.", param="model"
    )

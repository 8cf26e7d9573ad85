"""Small pieces of plain ASGI."""

import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from kt_legacy_engine.errors import ApiError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_BODY_BYTES = 16 << 20


class ClientLeft(Exception):
    """There is nobody left to answer."""


def header(scope: Scope, name: bytes) -> str | None:
    """The header's value; None where it is missing or came more than once."""
    values = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else None


def admits(key: str, authorization: str | None) -> bool:
    scheme, _, offered = (authorization or "").partition(" ")
    return scheme.lower() == "bearer" and secrets.compare_digest(
        _digest(offered.strip(" ")), _digest(key)
    )


async def read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        body += message.get("body", b"")
        if len(body) > _BODY_BYTES:
            raise ApiError(
                413, "request_too_large", f"The request is larger than {_BODY_BYTES} bytes."
            )
        if not message.get("more_body", False):
            return bytes(body)


async def client_left(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def answer(
    send: Send,
    status: int,
    body: bytes,
    content_type: str = "application/json",
    headers: tuple[tuple[str, str], ...] = (),
) -> None:
    await begin(send, status, content_type, (*headers, ("content-length", str(len(body)))))
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def answer_json(send: Send, status: int, value: Any) -> None:
    await answer(send, status, json.dumps(value).encode())


async def answer_error(send: Send, error: ApiError) -> None:
    await answer(send, error.status, error.body(), headers=error.headers)


async def begin(
    send: Send, status: int, content_type: str, headers: tuple[tuple[str, str], ...] = ()
) -> None:
    said = (("content-type", content_type), *headers)
    encoded = [(name.encode("ascii"), value.encode("ascii")) for name, value in said]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


async def more(send: Send, body: bytes, *, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": not last})


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("latin-1", "replace")).digest()

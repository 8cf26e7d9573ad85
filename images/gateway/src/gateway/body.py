"""The client's request body, read whole and within bounds."""

from starlette.types import Receive, Scope

from gateway.alarm import Within
from gateway.asgi import header
from gateway.errors import Refused, body_late, body_too_large


class ClientLeftError(Exception):
    """The client closed its connection while its request body was still arriving."""


async def read_body(scope: Scope, receive: Receive, *, limit_bytes: int, within_s: float) -> bytes:
    announced = header(scope, b"content-length")
    if announced is not None and int(announced) > limit_bytes:
        raise Refused(body_too_large(limit_bytes))
    body = bytearray()
    more = True
    with Within(within_s, lambda: Refused(body_late(within_s))):
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeftError
            body += message["body"]
            if len(body) > limit_bytes:
                raise Refused(body_too_large(limit_bytes))
            more = message["more_body"]
    return bytes(body)

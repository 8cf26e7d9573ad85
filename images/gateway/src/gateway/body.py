"""The client's request body, read whole and within bounds."""

from starlette.types import Receive, Scope
from typing_extensions import Self

from gateway.alarm import Within
from gateway.arrival_errors import body_late, body_too_large
from gateway.asgi import BODY_IS_HERE, header
from gateway.errors import Refused, too_many

SMALL_BYTES = 2**18
"""Bodies of this size are no matter: the line bounds their number."""
_OBJECT_BYTES = 100
"""What each object or list counts for beside its text: it is larger when it is read."""
_RETRY_S = 10.0


class ClientLeftError(Exception):
    """The client closed its connection while its request body was still arriving."""


class Shelf:
    """Room for the body of one request, from its first byte to the end of its answer."""

    def __init__(self, room: "BodyRoom") -> None:
        self._room = room
        self.held_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._room.held_bytes -= self.held_bytes

    def grow_to(self, size: int) -> None:
        if size > SMALL_BYTES:
            self._room.take(size - self.held_bytes)
            self.held_bytes = size

    def weigh(self, body: bytearray) -> None:
        """By what it will be once it is read, too; alone each has room."""
        if self.held_bytes:
            objects = body.count(b"{") + body.count(b"[")
            weight = len(body) + _OBJECT_BYTES * objects
            self.grow_to(max(self.held_bytes, min(weight, self._room.limit_bytes)))


class BodyRoom:
    """What all large bodies together may take: who waits in the line is kept in memory."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    def shelf(self) -> Shelf:
        """To be left again by `with`."""
        return Shelf(self)

    def take(self, size: int) -> None:
        if self.held_bytes + size > self.limit_bytes:
            message = "Too many large requests are waiting."
            raise Refused(too_many("queue_full", message, _RETRY_S))
        self.held_bytes += size


async def read_body(
    scope: Scope, receive: Receive, shelf: Shelf, *, limit_bytes: int, within_s: float
) -> bytes:
    announced = header(scope, b"content-length")
    if announced is not None and int(announced) > limit_bytes:
        raise Refused(body_too_large(limit_bytes))
    if scope.get(BODY_IS_HERE):
        return await _received(receive, shelf, limit_bytes)
    with Within(within_s, lambda: Refused(body_late(within_s))):
        return await _received(receive, shelf, limit_bytes)


async def _received(receive: Receive, shelf: Shelf, limit_bytes: int) -> bytes:
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        body += message["body"]
        if len(body) > limit_bytes:
            raise Refused(body_too_large(limit_bytes))
        shelf.grow_to(len(body))
        more = message["more_body"]
    shelf.weigh(body)
    return bytes(body)

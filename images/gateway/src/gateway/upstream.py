"""The engine as the gateway sees it. The only module that opens connections to it."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from urllib.parse import urlsplit

from pydantic import SecretStr

from gateway.alarm import Within
from gateway.engine_connection import Connection

# Below the five seconds after which every engine here closes an idle connection.
_IDLE_AT_MOST_S = 2.0
# Some engines keep a thread for each.
_IDLE_AT_MOST = 32
# A restarted engine may come back under another address.
_ADDRESSES_KEPT_S = 2.0


class EngineError(Exception):
    """The engine did not do its part."""

    engine_ended = True
    """It works on the request no more."""
    may_have_begun = True
    """It may have died of the request, so that it must not get it again and again."""


class EngineUnreachableError(EngineError):
    """No connection: the request never reached the engine."""

    may_have_begun = False


class EngineConnectLateError(EngineUnreachableError):
    """Somebody is there and takes no connection in time."""


class EngineRefusedGatewayError(EngineError):
    """The engine does not accept the gateway's key."""


class EngineCutOffError(EngineError):
    """The connection broke before the answer was complete."""


class EngineBusyError(EngineError):
    """The engine's own line is full."""

    may_have_begun = False


class Answer:
    """An answer whose status and headers are here and whose body is still to be read."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.status = connection.status
        if self.status == HTTPStatus.REQUEST_TIMEOUT:
            # Of the engine's own limit. Clients take a 408 for theirs, and send it all again.
            self.status = HTTPStatus.GATEWAY_TIMEOUT.value
        self.headers = connection.headers
        kinds = [value for name, value in self.headers if name == b"content-type"]
        self.is_stream = bool(kinds) and _is_event_stream(kinds[0])

    def read_some(self) -> Awaitable[bytes]:
        """The next bytes, as soon as there are any; empty at the end."""
        return self._connection.read_some()

    async def read_all(self) -> bytes:
        parts = []
        while part := await self.read_some():
            parts.append(part)
        return b"".join(parts)


class Engine:
    """A client of the one engine at `url`, which never sends a request twice.

    A POST that may have begun to generate must not be repeated, and one into a connection that the
    engine has just closed fails. So an idle connection is used again only while it is younger than
    any engine's patience with it and the kernel knows of no end of it. One of which an answer was
    not read to its end is closed.
    """

    def __init__(self, url: str, key: SecretStr) -> None:
        parts = urlsplit(url)
        if parts.hostname is None:
            raise ValueError(url)
        self._host = parts.hostname
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._own_headers = (
            f"host: {parts.netloc.rpartition('@')[2]}\r\n"
            f"authorization: Bearer {key.get_secret_value()}\r\n"
            "accept-encoding: identity\r\n"
        )
        self._idle: dict[Connection, asyncio.TimerHandle] = {}
        self._addresses: list[str] = []
        self._resolved_s = 0.0

    def close(self) -> None:
        for connection in list(self._idle):
            self._drop(connection)

    def ask(
        self,
        method: str,
        path: str,
        *,
        headers: dict[str, str],
        body: bytes | None,
        connect_timeout_s: float,
    ) -> AbstractAsyncContextManager[Answer]:
        """One request. What is not read to its end closes the connection."""
        head = self._head(method, path, headers, body)
        return Asking(self, head, body, connect_timeout_s)

    def _head(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> bytes:
        named = "".join([f"{name}: {value}\0" for name, value in headers.items()])
        if "\r" in named or "\n" in named or named.count("\0") != len(headers):
            message = "a header that would become two"
            raise ValueError(message)
        length = "" if body is None else f"content-length: {len(body)}\r\n"
        given = named.replace("\0", "\r\n")
        first = f"{method} {self._prefix}{path} HTTP/1.1\r\n"
        return f"{first}{self._own_headers}{given}{length}\r\n".encode("latin-1")

    # --- idle connections ---

    async def take(self, connect_timeout_s: float) -> Connection:
        return self._taken() or await self._connected(connect_timeout_s)

    def _taken(self) -> Connection | None:
        """The one used last, if it is surely good."""
        while self._idle:
            connection, timer = self._idle.popitem()
            is_young = timer.when() > asyncio.get_running_loop().time()
            timer.cancel()
            if is_young and connection.is_open():
                return connection
            connection.close()
        return None

    def put(self, connection: Connection) -> None:
        if len(self._idle) < _IDLE_AT_MOST and connection.may_be_used_again():
            loop = asyncio.get_running_loop()
            self._idle[connection] = loop.call_later(_IDLE_AT_MOST_S, self._drop, connection)
        else:
            connection.close()

    def _drop(self, connection: Connection) -> None:
        self._idle.pop(connection).cancel()
        connection.close()

    # --- new ones ---

    async def _connected(self, within_s: float) -> Connection:
        try:
            with Within(within_s, lambda: _connect_late(within_s)):
                return await self._connected_to_one_of(await self._resolved())
        except OSError as error:
            # Perhaps it has moved.
            self._addresses = []
            raise EngineUnreachableError(str(error)) from error

    async def _connected_to_one_of(self, addresses: list[str]) -> Connection:
        *others, last = addresses
        for address in others:
            try:
                return await self._connected_to(address)
            except OSError:
                continue
        return await self._connected_to(last)

    async def _connected_to(self, address: str) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(EngineCutOffError),
            address,
            self._port,
            ssl=self._tls,
            server_hostname=self._host if self._tls else None,
        )
        return connection

    async def _resolved(self) -> list[str]:
        loop = asyncio.get_running_loop()
        if not self._addresses or loop.time() - self._resolved_s > _ADDRESSES_KEPT_S:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._addresses = [str(address[0]) for *_, address in found]
            self._resolved_s = loop.time()
        return self._addresses


class Asking:
    """From the request's first byte until its answer is left."""

    def __init__(
        self, engine: Engine, head: bytes, body: bytes | None, connect_timeout_s: float
    ) -> None:
        self._engine = engine
        self._head = head
        self._body = body
        self._connect_timeout_s = connect_timeout_s
        self._connection: Connection

    async def __aenter__(self) -> Answer:
        connection = self._connection = await self._engine.take(self._connect_timeout_s)
        try:
            await connection.send(self._head, self._body)
        except BaseException:
            self._engine.put(connection)
            raise
        if connection.status == HTTPStatus.UNAUTHORIZED:
            self._engine.put(connection)
            message = "the engine answered 401"
            raise EngineRefusedGatewayError(message)
        return Answer(connection)

    async def __aexit__(self, *_: object) -> None:
        self._engine.put(self._connection)


def _is_event_stream(kind: bytes) -> bool:
    return kind.partition(b";")[0].strip().lower() == b"text/event-stream"


def _connect_late(within_s: float) -> EngineConnectLateError:
    return EngineConnectLateError(f"no connection in {within_s:g} s")

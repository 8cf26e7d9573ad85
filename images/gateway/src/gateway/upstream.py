"""The engine as the gateway sees it. The only module that uses aiohttp."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import aiohttp
from pydantic import SecretStr


class EngineError(Exception):
    """The engine did not do its part."""

    engine_ended = True
    """It works on the request no more."""


class EngineUnreachableError(EngineError):
    """No connection: the request never reached the engine."""


class EngineConnectLateError(EngineUnreachableError):
    """Somebody is there and takes no connection in time."""


class EngineRefusedGatewayError(EngineError):
    """The engine does not accept the gateway's key."""


class EngineCutOffError(EngineError):
    """The connection broke before the answer was complete."""


class EngineBusyError(EngineError):
    """The engine's own line is full."""


class Answer:
    """An answer whose status and headers are here and whose body is still to be read."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = [(name.lower(), value) for name, value in response.raw_headers]

    @property
    def is_stream(self) -> bool:
        return self._response.content_type == "text/event-stream"

    async def read_some(self) -> bytes:
        """The next bytes, as soon as there are any; empty at the end."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise EngineCutOffError(str(error)) from error

    async def read_all(self) -> bytes:
        parts = []
        while part := await self.read_some():
            parts.append(part)
        return b"".join(parts)


class Engine:
    """A client of the one engine at `url`. Connections live as long as one request.

    A kept-alive connection that the engine has just closed fails the next POST on it, and a POST
    that may have begun to generate must not be sent twice. Opening a connection costs under a
    millisecond on this network; an answer takes seconds. So none is kept, and nothing is retried.
    """

    def __init__(self, url: str, key: SecretStr) -> None:
        self._url = url.rstrip("/")
        self._authorization = f"Bearer {key.get_secret_value()}"
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Needs the running event loop, which does not exist yet when the application is made."""
        self._session = aiohttp.ClientSession(
            # A restarted engine may come back under another address.
            connector=aiohttp.TCPConnector(limit=0, force_close=True, ttl_dns_cache=2),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("user-agent", "content-type", "accept"),
            auto_decompress=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def ask(
        self,
        method: str,
        path: str,
        *,
        headers: dict[str, str],
        body: bytes | None,
        connect_timeout_s: float,
    ) -> AsyncIterator[Answer]:
        """Sends one request. Leaving the block closes the connection, whatever is still unread."""
        if self._session is None:
            message = "the engine's client is not open"
            raise RuntimeError(message)
        own = {"authorization": self._authorization, "accept-encoding": "identity"}
        if body is not None:
            own["content-length"] = str(len(body))
        try:
            response = await self._session.request(
                method,
                self._url + path,
                headers={**headers, **own},
                # aiohttp warns about large plain bytes; it writes a file object piece by piece.
                data=None if body is None else io.BytesIO(body),
                allow_redirects=False,
                # No total and no read timeout: a long prompt is silent for minutes.
                timeout=aiohttp.ClientTimeout(
                    total=None,
                    connect=connect_timeout_s,
                    sock_connect=connect_timeout_s,
                    sock_read=None,
                ),
            )
        except aiohttp.ConnectionTimeoutError as error:
            raise EngineConnectLateError(str(error)) from error
        except aiohttp.ClientConnectorError as error:
            raise EngineUnreachableError(str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineCutOffError(str(error)) from error
        try:
            if response.status == HTTPStatus.UNAUTHORIZED:
                message = "the engine answered 401"
                raise EngineRefusedGatewayError(message)
            yield Answer(response)
        finally:
            response.close()

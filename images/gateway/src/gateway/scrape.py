"""Metrics on a port of their own, for the network inside: no key, one small HTTP/1.0 server."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from gateway.policy import Policy
from gateway.upstream import Engine, EngineError

OWN_PATH = "/metrics"
ENGINE_PATH = "/metrics/engine"

_REQUEST_WITHIN_S = 5.0
_ENGINE_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Page:
    status: HTTPStatus
    content_type: str = "text/plain"
    body: bytes = b""


Render = Callable[[], Awaitable[Page]]


async def engine_page(engine: Engine, policy: Policy) -> Page:
    """The engine's own metrics, word for word.

    On a path of their own: what it says badly, late or under one of our names spoils nothing here.
    """
    path = policy.capabilities.metrics_path
    if path is None:
        return Page(HTTPStatus.NOT_FOUND)
    try:
        return await asyncio.wait_for(_relayed(engine, path, policy), _ENGINE_WITHIN_S)
    except asyncio.TimeoutError:
        return Page(HTTPStatus.GATEWAY_TIMEOUT)
    except EngineError:
        return Page(HTTPStatus.BAD_GATEWAY)


async def _relayed(engine: Engine, path: str, policy: Policy) -> Page:
    connect_timeout_s = policy.timeouts.connect_s
    async with engine.ask(
        "GET", path, headers={}, body=None, connect_timeout_s=connect_timeout_s
    ) as answer:
        if answer.status != HTTPStatus.OK:
            return Page(HTTPStatus.BAD_GATEWAY)
        content_type = dict(answer.headers).get(b"content-type", b"text/plain")
        return Page(HTTPStatus.OK, content_type.decode("latin-1"), await answer.read_all())


class Scrape:
    def __init__(self, pages: Mapping[str, Render]) -> None:
        self._pages = {f"GET {path} ".encode("ascii"): render for path, render in pages.items()}
        self._server: asyncio.AbstractServer | None = None

    async def open(self, host: str, port: int) -> int:
        """Returns the port, which the system chooses where `port` is 0."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=8192)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_WITHIN_S)
            writer.write(_response(await self._page(head)))
            await asyncio.wait_for(writer.drain(), _REQUEST_WITHIN_S)
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.LimitOverrunError):
            # A scraper that does not ask, or does not listen, asks again.
            pass
        finally:
            writer.close()

    async def _page(self, head: bytes) -> Page:
        for start, render in self._pages.items():
            if head.startswith(start):
                return await render()
        return Page(HTTPStatus.NOT_FOUND)


def _response(page: Page) -> bytes:
    lines = (
        f"HTTP/1.0 {page.status.value} {page.status.phrase}",
        f"content-type: {page.content_type}",
        f"content-length: {len(page.body)}",
        "",
        "",
    )
    return "\r\n".join(lines).encode("latin-1") + page.body

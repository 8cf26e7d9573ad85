"""What a careful gateway is compared with: the least that passes a stream on and sees who left.

Plain ASGI and aiohttp, no key, no line, no limits, no counting. Run by uvicorn, as the gateway is.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_session: list[aiohttp.ClientSession] = []


async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    if not _session:
        _session.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
    body = b""
    more = True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    serving = asyncio.ensure_future(_serve(scope, body, send))
    leaving = asyncio.ensure_future(receive())
    await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
    for task in (serving, leaving):
        task.cancel()
    await asyncio.gather(serving, leaving, return_exceptions=True)


async def _serve(scope: MutableMapping[str, Any], body: bytes, send: Send) -> None:
    async with _session[0].request(
        scope["method"],
        os.environ["UPSTREAM_URL"] + scope["path"],
        data=body,
        headers={"content-type": "application/json"},
        timeout=aiohttp.ClientTimeout(total=None),
    ) as answer:
        headers = [(b"content-type", answer.headers["content-type"].encode())]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        async for part in answer.content.iter_any():
            await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})

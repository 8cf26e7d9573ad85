"""Clients of whatever listens on a port: how long to the first event, and what it cost."""

import asyncio
import itertools
import json
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gateway_bench.stub import MODEL, unchunked

_names = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Target:
    """Who is asked. `key` is what it wants as bearer."""

    port: int
    key: str


@dataclass(slots=True)
class Streamed:
    first_s: float
    body: bytes


@dataclass(slots=True)
class Connection:
    """Keep-alive, as clients have it; opened again where the server closes."""

    target: Target
    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = field(default=None)

    async def send(self, *, stream: bool, pace: str) -> str:
        """Returns the name under which the engine knows the request."""
        if self._writer is None or self._writer.is_closing():
            self._reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", self.target.port, limit=2**22
            )
        name = f"n{next(_names)}x{time.monotonic_ns()}"
        asked = {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"{name}:{pace}"}],
            "stream": stream,
        }
        body = json.dumps(asked).encode()
        self._writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\n"
            f"authorization: Bearer {self.target.key}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        return name

    async def stream(self, pace: str) -> Streamed:
        await self.send(stream=True, pace=pace)
        began_s = time.monotonic()
        reader = self._open_reader()
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head[:20]:
            message = f"{head!r} {await reader.read(2000)!r}"
            raise RuntimeError(message)
        received = await reader.read(2**20)
        first_s = time.monotonic() - began_s
        parts = [received]
        # Chunked from all of them; the last bytes come together or in two.
        while not received.endswith(b"0\r\n\r\n"):
            part = await reader.read(2**20)
            if not part:
                break
            parts.append(part)
            received = received[-8:] + part
        self._done(head)
        body = b"".join(parts)
        return Streamed(first_s, unchunked(body) if b"chunked" in head.lower() else body)

    async def whole(self, pace: str) -> bytes:
        await self.send(stream=False, pace=pace)
        reader = self._open_reader()
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b" 200 " not in head[:20]:
            message = f"{head!r} {await reader.read(2000)!r}"
            raise RuntimeError(message)
        if b"content-length:" in head:
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
        else:
            body = unchunked(await reader.readuntil(b"\r\n0\r\n\r\n"))
        self._done(head)
        return body

    async def first_event(self) -> None:
        await self._open_reader().readuntil(b"data:")

    def _open_reader(self) -> asyncio.StreamReader:
        if self._reader is None:
            message = "nothing was sent yet"
            raise RuntimeError(message)
        return self._reader

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _done(self, head: bytes) -> None:
        if b"connection: close" in head.lower():
            self.close()


async def one_after_another(target: Target, *, count: int) -> list[Streamed]:
    connection = Connection(target)
    answers = [await connection.stream("0:0:3") for _ in range(count)]
    connection.close()
    return answers


async def together(target: Target, *, clients: int, ticks: int, tick_s: float) -> list[Streamed]:
    """Streams at a pace, begun one after another within one tick."""

    async def one(number: int) -> Streamed:
        connection = Connection(target)
        await asyncio.sleep(tick_s * number / clients)
        answer = await connection.stream(f"0:{tick_s}:{ticks}")
        connection.close()
        return answer

    return await asyncio.gather(*map(one, range(clients)))


async def whole_answers(target: Target, *, clients: int, count: int) -> float:
    """Seconds for `count` answers without stream in all."""

    async def one() -> None:
        connection = Connection(target)
        for _ in range(count // clients):
            await connection.whole("0:0:0")
        connection.close()

    began_s = time.monotonic()
    await asyncio.gather(*(one() for _ in range(clients)))
    return time.monotonic() - began_s


async def leave(target: Target, engine_port: int, *, phase: str) -> float | None:
    """Seconds from a client's leaving to the engine's seeing it; None: it ran to its end."""
    connection = Connection(target)
    stream = phase != "without stream"
    pace = "2:0:1" if phase == "before the first token" else "0:2:2"
    name = await connection.send(stream=stream, pace=pace)
    if phase == "mid-stream":
        await connection.first_event()
    else:
        await _until_known(engine_port, name)
    left_s = time.monotonic()
    connection.close()
    for _ in range(80):
        found = await ask_json(engine_port, f"/_left?{name}")
        if found is not None and (found[1] or found[0] is not None):
            return None if found[1] else float(found[0]) - left_s
        await asyncio.sleep(0.05)
    return None


async def _until_known(engine_port: int, name: str) -> None:
    while await ask_json(engine_port, f"/_left?{name}") is None:  # noqa: ASYNC110 - in a process
        await asyncio.sleep(0.01)


async def ask_json(port: int, path: str) -> list[Any] | None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        found: list[Any] | None = json.loads(await reader.readexactly(length))
        return found
    finally:
        writer.close()

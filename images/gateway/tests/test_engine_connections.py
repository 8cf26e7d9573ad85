"""Connections to the engine: kept while that is surely safe, and no request is ever sent twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from pydantic import SecretStr

from gateway import upstream
from gateway.upstream import Engine, EngineCutOffError

WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
CLOSING = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"
OLD = b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi"
ENDLESS = b"HTTP/1.1 200 OK\r\n\r\nhi"
TWO = WHOLE + WHOLE
EARLY = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"


@dataclass(slots=True)
class Raw:
    """A server that answers each request with the same bytes."""

    says: bytes
    closes: bool = False
    connections: int = 0
    requests: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    serving: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        if (task := asyncio.current_task()) is not None:
            self.serving.add(task)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.requests += 1
                writer.write(self.says)
                if self.closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


@asynccontextmanager
async def engine_of(raw: Raw) -> AsyncIterator[Engine]:
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    engine = Engine(f"http://127.0.0.1:{port}", SecretStr("k"))
    try:
        yield engine
    finally:
        engine.close()
        server.close()
        for writer in raw.writers:
            writer.transport.abort()
        await asyncio.gather(*raw.serving)


async def asked(engine: Engine) -> bytes:
    asking = engine.ask("GET", "/x", headers={}, body=None, connect_timeout_s=5)
    async with asking as answer:
        return await answer.read_all()


@pytest.mark.parametrize(
    ("says", "closes", "connections"),
    [
        pytest.param(WHOLE, False, 1, id="whole"),
        pytest.param(CHUNKED, False, 1, id="chunked"),
        pytest.param(EARLY + WHOLE, False, 1, id="after an early one"),
        pytest.param(CLOSING, False, 3, id="it says that it closes"),
        pytest.param(OLD, False, 3, id="HTTP/1.0"),
        pytest.param(ENDLESS, True, 3, id="its end is the connection's"),
        pytest.param(TWO, False, 3, id="it says more than it was asked"),
    ],
)
def test_a_connection_is_used_again_only_where_both_sides_are_done(
    says: bytes, closes: bool, connections: int
) -> None:
    raw = Raw(says, closes)

    async def ask_thrice() -> None:
        async with engine_of(raw) as engine:
            assert [await asked(engine) for _ in range(3)] == [b"hi"] * 3

    asyncio.run(ask_thrice())
    assert (raw.connections, raw.requests) == (connections, 3)


def test_one_that_was_not_read_to_its_end_is_closed() -> None:
    raw = Raw(WHOLE)

    async def leave_one() -> None:
        async with engine_of(raw) as engine:
            async with engine.ask("GET", "/x", headers={}, body=None, connect_timeout_s=5):
                pass
            assert await asked(engine) == b"hi"

    asyncio.run(leave_one())
    assert raw.connections == 2


@pytest.mark.parametrize("idle_s", [0.0, 0.05], ids=["in the same moment", "a while ago"])
def test_one_that_the_engine_has_closed_is_not_written_to(idle_s: float) -> None:
    raw = Raw(WHOLE)

    async def close_between() -> None:
        async with engine_of(raw) as engine:
            await asked(engine)
            raw.writers[0].transport.abort()
            # One turn of the loop closes the server's end; the client's may not have been told.
            await asyncio.sleep(idle_s)
            assert await asked(engine) == b"hi"

    asyncio.run(close_between())
    assert (raw.connections, raw.requests) == (2, 2)


def test_one_that_was_idle_for_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "_IDLE_AT_MOST_S", 0.02)
    raw = Raw(WHOLE)

    async def wait_between() -> None:
        async with engine_of(raw) as engine:
            await asked(engine)
            await asyncio.sleep(0.1)
            assert raw.writers[0].is_closing()
            await asked(engine)

    asyncio.run(wait_between())
    assert raw.connections == 2


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"HTTP/1.1 200",
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnot a length\r\n",
    ],
)
def test_what_is_no_whole_answer_is_told_and_not_asked_again(says: bytes) -> None:
    raw = Raw(says, closes=True)

    async def ask() -> None:
        async with engine_of(raw) as engine:
            with pytest.raises(EngineCutOffError):
                await asked(engine)

    asyncio.run(ask())
    assert raw.requests == 1


@pytest.mark.parametrize("value", ["a\r\nx-more: b", "a\nb", "a\0b"])
def test_no_header_becomes_two(value: str) -> None:
    engine = Engine("http://127.0.0.1:1", SecretStr("k"))

    async def ask() -> None:
        asking = engine.ask("GET", "/x", headers={"accept": value}, body=None, connect_timeout_s=5)
        async with asking:
            pass

    with pytest.raises(ValueError, match="two"):
        asyncio.run(ask())


def test_a_client_that_reads_slowly_holds_the_engine_back() -> None:
    size = 2**24
    raw = Raw(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + bytes(size))

    async def read_late() -> int:
        async with engine_of(raw) as engine:
            asking = engine.ask("GET", "/x", headers={}, body=None, connect_timeout_s=5)
            async with asking as answer:
                await asyncio.sleep(0.3)
                first = await answer.read_some()
                assert len(first) < size // 2
                return len(first) + len(await answer.read_all())

    assert asyncio.run(read_late()) == size

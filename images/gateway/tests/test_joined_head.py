"""Each write to a socket is a call of the kernel and a packet: a head goes with what follows it."""

import asyncio
from typing import Any, cast

from gateway.joined_head import JoinedHead

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class _Socket:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed_after: int | None = None

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closed_after = len(self.written)

    def get_extra_info(self, name: str) -> str:
        return name


def _written(scene: Any) -> _Socket:
    async def run() -> _Socket:
        socket = _Socket()
        transport = JoinedHead(cast(asyncio.Transport, socket), asyncio.get_running_loop())
        await scene(transport)
        return socket

    return asyncio.run(run())


def test_a_head_goes_out_with_the_body_and_what_follows_goes_by_itself() -> None:
    async def scene(transport: JoinedHead) -> None:
        transport.write(HEAD)
        transport.write(b"one")
        transport.write(b"two")
        await asyncio.sleep(0)

    assert _written(scene).written == [HEAD + b"one", b"two"]


def test_a_head_that_nothing_follows_goes_out_in_the_loops_next_turn() -> None:
    async def scene(transport: JoinedHead) -> None:
        transport.write(HEAD)
        await asyncio.sleep(0)
        transport.write(b"later")

    assert _written(scene).written == [HEAD, b"later"]


def test_closing_sends_the_head_first() -> None:
    async def scene(transport: JoinedHead) -> None:
        transport.write(HEAD)
        transport.close()
        await asyncio.sleep(0)

    socket = _written(scene)
    assert (socket.written, socket.closed_after) == ([HEAD], 1)


def test_all_else_is_the_sockets_own() -> None:
    async def scene(transport: JoinedHead) -> None:
        assert transport.get_extra_info("peername") == "peername"

    assert _written(scene).written == []

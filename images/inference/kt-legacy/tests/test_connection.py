"""What the kernel says of a client's end of the connection."""

import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from kt_legacy_engine.connection import hung_up
from reciting import eventually


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    with client, server:
        yield client, server


def leaves(client: socket.socket) -> None:
    client.close()


def resets(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def says_no_more(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("end", [leaves, resets, says_no_more])
def test_an_end_is_known_whatever_is_still_unread(
    ends: tuple[socket.socket, socket.socket], end: Callable[[socket.socket], None]
) -> None:
    client, server = ends
    asked = hung_up({"state": {"socket": server}})
    client.sendall(b"unread")
    assert not asked()
    end(client)
    eventually(asked)


def test_our_own_end_is_one_too(ends: tuple[socket.socket, socket.socket]) -> None:
    _, server = ends
    asked = hung_up({"state": {"socket": server}})
    server.close()
    assert asked()

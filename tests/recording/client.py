"""One HTTP/1.1 exchange by hand: the pieces of an answer as they came, and leaving at any of them."""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from recording.asked import WRONG_KEY, Asked

# Of every answer another, or what was asked for: they say nothing of how an engine answers.
_LEFT_OUT = frozenset({"connection", "content-length", "date", "x-request-id"})


@dataclass(frozen=True, slots=True)
class Door:
    """`url`: http, without a path. `within_s`: the longest that it may be silent."""

    url: str
    key: str
    within_s: float = 300

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        if parts.scheme != "http" or not parts.hostname or parts.path not in {"", "/"}:
            message = f"{self.url} is not of the form http://HOST:PORT"
            raise ValueError(message)
        return parts.hostname, parts.port or 80


class Exchange:
    """A request that was sent. `pieces`: the answer's body, by the chunks that it came in."""

    def __init__(self, door: Door, asked: Asked) -> None:
        self._socket = socket.create_connection(door.address, timeout=door.within_s)
        self._socket.sendall(_head(door, asked) + (asked.body or b""))
        self._file = self._socket.makefile("rb")
        self.status = int(self._line().split()[1])
        self.headers = dict(self._headers())
        self.chunked = "chunked" in self.headers.get("transfer-encoding", "")
        self.pieces: list[bytes] = []
        self._rest = self._read()

    def read_one(self) -> bytes:
        """The next piece; b"" at the end."""
        piece = next(self._rest, b"")
        if piece:
            self.pieces.append(piece)
        return piece

    def read_all(self) -> None:
        while self.read_one():
            pass

    def close(self) -> None:
        """Leaves, wherever the answer is."""
        self._file.close()
        self._socket.close()

    def _read(self) -> Iterator[bytes]:
        if not self.chunked:
            length = self.headers.get("content-length")
            yield self._file.read(None if length is None else int(length))
            return
        while size := int(self._line().partition(";")[0], 16):
            yield self._file.read(size)
            self._line()
        self._line()

    def _headers(self) -> Iterator[tuple[str, str]]:
        while line := self._line():
            name, _, value = line.partition(":")
            yield name.lower(), value.strip()

    def _line(self) -> str:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            message = f"the engine closed the connection after {line!r}"
            raise ConnectionError(message)
        return line.decode("latin-1").removesuffix("\r\n")


def told(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in sorted(headers.items()) if name not in _LEFT_OUT}


def _head(door: Door, asked: Asked) -> bytes:
    lines = [
        f"{asked.method} {asked.path} HTTP/1.1",
        f"host: {urlsplit(door.url).netloc}",
        "connection: close",
        "accept-encoding: identity",
    ]
    if asked.right_key is not None:
        lines.append(f"authorization: Bearer {door.key if asked.right_key else WRONG_KEY}")
    if asked.body is not None:
        lines += ["content-type: application/json", f"content-length: {len(asked.body)}"]
    return "\r\n".join([*lines, "", ""]).encode()

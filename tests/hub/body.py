"""Sends a file's bytes over a socket, as well or as badly as the faults want it."""

import fcntl
import os
import re
import socket
import struct
import sys
import termios
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import BinaryIO

from hub.answers import Content
from hub.faults import (
    Corrupt,
    Fault,
    Fin,
    LateFin,
    NoRange,
    Reset,
    Stall,
    Trickle,
    Truncate,
    WrongContentRange,
)

_CHUNK = 1 << 20
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_FLIP = 0xFF
# Where tcpi_bytes_acked is in Linux's struct tcp_info.
_BYTES_ACKED = 120


@dataclass(frozen=True, slots=True)
class Extent:
    """Which bytes of the file an answer holds: [start, end). `status`: 200, 206 or 416."""

    status: int
    start: int
    end: int


def extent(asked: str | None, if_range: str | None, content: Content) -> Extent:
    size = content.size_bytes
    whole = Extent(HTTPStatus.OK, 0, size)
    found = _RANGE.fullmatch(asked or "")
    stale = if_range is not None and if_range.strip('"') != content.etag
    if found is None or stale or found.groups() == ("", ""):
        return whole
    first, last = found.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1 if last else size)
    if start >= size or end <= start:
        return Extent(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, 0, 0)
    return Extent(HTTPStatus.PARTIAL_CONTENT, start, end)


@dataclass(frozen=True, slots=True)
class Sending:
    """One answer with bytes, after the faults had their say about what its header claims."""

    status: int
    start: int
    end: int
    headers: dict[str, str] = field(default_factory=dict)


def prepare(content: Content, span: Extent, faults: Sequence[Fault]) -> Sending:
    status, start, end, size = span.status, span.start, span.end, content.size_bytes
    if any(isinstance(fault, NoRange) for fault in faults):
        status, start, end = HTTPStatus.OK, 0, size
    end -= sum(fault.by for fault in faults if isinstance(fault, Truncate))
    headers = {
        "Content-Type": "application/octet-stream",
        "Accept-Ranges": "bytes",
        "ETag": f'"{content.etag}"',
        "Content-Length": str(end - start),
        **content.headers,
    }
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        headers["Content-Range"] = f"bytes */{size}"
    if status == HTTPStatus.PARTIAL_CONTENT:
        lies = [fault for fault in faults if isinstance(fault, WrongContentRange)]
        shift = sum(lie.shift for lie in lies)
        total = size + sum(lie.total for lie in lies)
        headers["Content-Range"] = f"bytes {start + shift}-{end - 1 + shift}/{total}"
    if any(isinstance(fault, LateFin) for fault in faults):
        del headers["Content-Length"]
        headers["Connection"] = "close"
    return Sending(status, start, end, headers)


@dataclass(frozen=True, slots=True)
class Line:
    """The connection. `sent` is told of all bytes; `closing` is set when the hub ends."""

    socket: socket.socket
    sent: Callable[[int], None]
    closing: threading.Event
    fired: Callable[[Fault], None]


def send(line: Line, file: BinaryIO, sending: Sending, faults: Sequence[Fault]) -> bool:
    """False: this connection is over."""
    position = sending.start
    cuts = [
        (fault.offset(sending.start), fault)
        for fault in faults
        if isinstance(fault, Reset | Fin | Stall)
    ]
    end = min([sending.end, *(offset for offset, _ in cuts)])
    flips = {fault.at for fault in faults if isinstance(fault, Corrupt)}
    slow = next((fault for fault in faults if isinstance(fault, Trickle)), None)
    slow_from = slow.offset(sending.start) if slow else end
    while position < end and not line.closing.is_set():
        until = min(end, position + _CHUNK)
        if slow and position >= slow_from:
            # Ten times a second, so that a client that counts over seconds sees it as even.
            until = min(until, position + max(1, slow.rate // 10))
            line.closing.wait((until - position) / slow.rate)
        else:
            until = min(until, slow_from)
        spoiled = sorted(flip for flip in flips if position <= flip < until)
        count = _piece(line.socket, file, position, until, spoiled)
        line.sent(count)
        position += count
    for _, fault in cuts:
        _end(line, fault)
        return False
    late = next((fault for fault in faults if isinstance(fault, LateFin)), None)
    if late:
        line.closing.wait(late.seconds)
    return late is None and not line.closing.is_set()


def _piece(
    connection: socket.socket, file: BinaryIO, start: int, end: int, spoiled: Sequence[int]
) -> int:
    if not spoiled:
        return os.sendfile(connection.fileno(), file.fileno(), start, end - start)
    piece = bytearray(os.pread(file.fileno(), end - start, start))
    for offset in spoiled:
        piece[offset - start] ^= _FLIP
    connection.sendall(piece)
    return len(piece)


def _end(line: Line, fault: Fault) -> None:
    _drain(line)
    line.fired(fault)
    if isinstance(fault, Stall):
        line.closing.wait(fault.seconds)
    if isinstance(fault, Reset):
        reset(line.socket)
        return
    line.socket.shutdown(socket.SHUT_WR)


def reset(connection: socket.socket) -> None:
    """RST. At once, though files made of the socket keep it open."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(connection.detach())


def unsent_bytes(connection: socket.socket) -> int:
    """What the other side has not acknowledged yet."""
    waiting = bytearray(4)
    fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, waiting)
    return int.from_bytes(waiting, sys.byteorder)


def acknowledged_bytes(connection: socket.socket) -> int:
    """Since the connection began. Still known after the other side has left."""
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    (count,) = struct.unpack_from("Q", state, _BYTES_ACKED)
    return int(count)


def _drain(line: Line) -> None:
    """A reset throws away what still waits in the socket: the offset would mean nothing."""
    for _ in range(400):
        if not unsent_bytes(line.socket) or line.closing.wait(0.005):
            return

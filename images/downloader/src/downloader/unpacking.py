"""The two forms in which a file arrives: as it is, or deflated. Both end as a proven final name.

A deflated file needs the space of both forms until it is published.
"""

import hashlib
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from downloader.durable import fsync_folder, open_new, part_of, stat_of, write_all
from downloader.halt import Halt
from downloader.hashing import in_order, inflated
from downloader.partfile import PartFile, map_of
from downloader.space import Room, is_full
from wire import FileStat, LockedFile


@dataclass(frozen=True, slots=True)
class Arrived:
    """All bytes are here. `digest`: of the file, in its own form."""

    digest: str
    publish: Callable[[], FileStat]


def plain(parts: PartFile, halt: Halt, gone: Callable[[], bool]) -> Arrived:
    hasher = hashlib.sha256()
    for chunk in in_order(parts, halt, gone):
        hasher.update(chunk)
    return Arrived(hasher.hexdigest(), parts.publish)


def deflated(
    file: LockedFile, parts: PartFile, room: Room, halt: Halt, gone: Callable[[], bool]
) -> Arrived:
    """Inflate into a file of its own while hashing; what can't be inflated has no digest."""
    hasher = hashlib.sha256()
    unpacked = part_of(unpacked_of(parts.final))
    at = 0
    try:
        with open_new(unpacked) as writer:
            for piece in inflated(in_order(parts, halt, gone)):
                if at + len(piece) > file.size_bytes:
                    return Arrived("of more than its bytes", _never)
                hasher.update(piece)
                _write(writer.fileno(), memoryview(piece), at, room)
                at += len(piece)
            os.fsync(writer.fileno())
            stat = stat_of(writer)
    except zlib.error as error:
        unpacked.unlink()
        return Arrived(f"nothing that can be inflated ({error})", _never)
    except BaseException:
        unpacked.unlink(missing_ok=True)
        raise

    def publish() -> FileStat:
        unpacked.replace(parts.final)
        fsync_folder(parts.final.parent)
        parts.discard()
        return stat

    return Arrived(hasher.hexdigest(), publish)


def unpacked_of(final: Path) -> Path:
    return final.with_name(f"{final.name}.inflated")


def unfinished(final: Path) -> tuple[Path, ...]:
    """Every file that may lie beside a final name while it is on its way."""
    return part_of(final), map_of(final), part_of(unpacked_of(final))


def forget(final: Path) -> None:
    """Of a file that is proven under its final name, a killed run may have left some of these."""
    for path in unfinished(final):
        path.unlink(missing_ok=True)


def _never() -> FileStat:
    raise AssertionError


def _write(descriptor: int, piece: memoryview, at: int, room: Room) -> None:
    while True:
        try:
            return write_all(descriptor, piece, at)
        except OSError as error:
            if not is_full(error):
                raise
            room.wait(error)

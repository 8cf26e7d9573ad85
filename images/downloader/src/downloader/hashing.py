"""SHA-256 of files: of one that is in place, and of one that is still arriving."""

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from downloader.durable import fsync_folder, stat_of
from downloader.halt import Halt
from downloader.partfile import PartFile
from wire import FileStat, LockedFile, ProvenFile

CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A file that is not what the lock asks for."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def wrong_size(file: LockedFile, found: str) -> Mismatch:
    return Mismatch(file.path, f"expected {file.size_bytes} bytes, found {found}")


def wrong_hash(file: LockedFile, found: str, more: str = "") -> Mismatch:
    return Mismatch(file.path, f"expected sha256 {file.sha256}, found {found}{more}")


def prove_in_place(
    file: LockedFile, final: Path, on_bytes: Callable[[int], None]
) -> ProvenFile | Mismatch:
    """Hash a file that already has its final name. Not a byte of it is written."""
    hasher = hashlib.sha256()
    buffer = memoryview(bytearray(CHUNK_BYTES))
    found_bytes = 0
    with final.open("rb", buffering=0) as reader:
        before = stat_of(reader)
        while count := reader.readinto(buffer):
            hasher.update(buffer[:count])
            found_bytes += count
            on_bytes(count)
        if found_bytes != file.size_bytes:
            return wrong_size(file, f"{found_bytes}")
        if hasher.hexdigest() != file.sha256:
            return wrong_hash(file, hasher.hexdigest())
        if stat_of(reader) != before:
            return Mismatch(file.path, "it was changed while it was read")
        # Its bytes may still be in memory only, if whoever put it here was not as careful.
        os.fsync(reader.fileno())
    fsync_folder(final.parent)
    return proven(file, before)


def proven(file: LockedFile, stat: FileStat) -> ProvenFile:
    return ProvenFile(
        path=file.path,
        size_bytes=file.size_bytes,
        sha256=file.sha256,
        mtime_ns=stat.mtime_ns,
        inode=stat.inode,
    )


def in_order(parts: PartFile, halt: Halt, gone: Callable[[], bool]) -> Iterator[memoryview]:
    """The file's bytes from its start, as far as they have arrived without a gap, until its end.

    What is read is mostly still in the page cache. It ends early if `gone`. Each chunk is a view of
    one buffer: use it before asking for the next.
    """
    buffer = memoryview(bytearray(min(CHUNK_BYTES, max(1, parts.content.size_bytes))))
    at = 0
    while at < parts.content.size_bytes:
        while (reached := parts.reached) <= at:
            halt.check()
            if gone():
                return
            with parts.changed:
                if parts.reached <= at:
                    parts.changed.wait(0.2)
        while at < reached:
            halt.check()
            count = parts.read(buffer[: min(len(buffer), reached - at)], at)
            if not count:
                raise OSError(f"{parts.final}: the part file became shorter")
            yield buffer[:count]
            at += count


def inflated(chunks: Iterator[memoryview]) -> Iterator[bytes]:
    """Raw deflate, a bounded piece at a time. Raises zlib.error."""
    machine = zlib.decompressobj(-zlib.MAX_WBITS)
    for chunk in chunks:
        piece = machine.decompress(chunk, CHUNK_BYTES)
        yield piece
        while machine.unconsumed_tail:
            piece = machine.decompress(machine.unconsumed_tail, CHUNK_BYTES)
            yield piece
    yield machine.flush()

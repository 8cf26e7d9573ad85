"""One file: hash it where it is, or copy it and hash what was copied. A final name is never half a file."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from downloader.errors import reading_from
from downloader.progress import Progress
from downloader.sources import Reader, Source
from wire import FileStat, LockedFile, ProvenFile

CHUNK_BYTES = 4 * 1024 * 1024
PART_SUFFIX = ".part"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A file that is not what the lock asks for."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def wrong_size(file: LockedFile, found: str) -> Mismatch:
    return Mismatch(file.path, f"expected {file.size_bytes} bytes, found {found}")


def adopt(file: LockedFile, final: Path, progress: Progress) -> ProvenFile | Mismatch:
    """Hash a file that already has its final name. Not a byte of it is written."""
    with final.open("rb", buffering=0) as reader:
        before = stat_of(reader)
        if mismatch := _drain(_chunks(reader), file, progress, into=None):
            return mismatch
        if stat_of(reader) != before:
            return Mismatch(file.path, "it was changed while it was read")
        # Its bytes may still be in memory only, if whoever put it here was not as careful.
        os.fsync(reader.fileno())
    fsync_folder(final.parent)
    return _proven(file, before)


def fetch(
    file: LockedFile, source: Source, final: Path, progress: Progress
) -> ProvenFile | Mismatch:
    """Copy the file to its final name by way of `<name>.part`, which does not outlive this call."""
    where = source.where(file)
    part = part_of(final)
    with reading_from(where):
        opened = source.open(file)
    try:
        with opened as reader, open_part(part) as writer:
            if mismatch := _drain(_chunks_of_source(reader, where), file, progress, into=writer):
                return mismatch
            os.fsync(writer.fileno())
            stat = stat_of(writer)
        part.replace(final)
    finally:
        part.unlink(missing_ok=True)
    fsync_folder(final.parent)
    return _proven(file, stat)


def write_atomically(final: Path, content: bytes) -> None:
    """All of `content` under its final name, or nothing, also after a power cut."""
    part = part_of(final)
    try:
        with open_part(part) as writer:
            _write(writer, memoryview(content))
            os.fsync(writer.fileno())
        part.replace(final)
    finally:
        part.unlink(missing_ok=True)
    fsync_folder(final.parent)


def make_folders(below: Path, folder: Path) -> None:
    """Make `folder` and what is missing between it and `below`, each one durable before the next."""
    if folder == below:
        return
    make_folders(below, folder.parent)
    if not folder.is_dir():
        folder.mkdir(exist_ok=True)  # another run may just have made it
        fsync_folder(folder.parent)


def part_of(final: Path) -> Path:
    return final.with_name(f"{final.name}{PART_SUFFIX}")


def open_part(part: Path) -> FileIO:
    # A new file, never one followed through a link or shared by one, whatever a killed run left.
    part.unlink(missing_ok=True)
    return part.open("xb", buffering=0)


def fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stat_of(opened: FileIO) -> FileStat:
    found = os.fstat(opened.fileno())
    return FileStat(found.st_size, found.st_mtime_ns, found.st_ino)


def _drain(
    chunks: Iterator[memoryview], file: LockedFile, progress: Progress, *, into: FileIO | None
) -> Mismatch | None:
    hasher = hashlib.sha256()
    found_bytes = 0
    for chunk in chunks:
        found_bytes += len(chunk)
        # A source that never ends must not fill the disk.
        if found_bytes > file.size_bytes:
            return wrong_size(file, "more")
        hasher.update(chunk)
        if into is not None:
            _write(into, chunk)
        progress.add(len(chunk))
    if found_bytes < file.size_bytes:
        return wrong_size(file, f"{found_bytes}")
    if hasher.hexdigest() != file.sha256:
        return Mismatch(file.path, f"expected sha256 {file.sha256}, found {hasher.hexdigest()}")
    return None


def _chunks(reader: Reader) -> Iterator[memoryview]:
    """Each chunk is a view of one buffer: use it before asking for the next."""
    buffer = memoryview(bytearray(CHUNK_BYTES))
    while count := reader.readinto(buffer):
        yield buffer[:count]


def _chunks_of_source(reader: Reader, where: str) -> Iterator[memoryview]:
    with reading_from(where):
        yield from _chunks(reader)


def _write(writer: FileIO, content: memoryview) -> None:
    while content:
        content = content[writer.write(content) :]


def _proven(file: LockedFile, stat: FileStat) -> ProvenFile:
    return ProvenFile(
        path=file.path,
        size_bytes=file.size_bytes,
        sha256=file.sha256,
        mtime_ns=stat.mtime_ns,
        inode=stat.inode,
    )

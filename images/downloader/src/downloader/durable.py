"""What a power cut must not undo: folders, names and small files, each durable before the next."""

import os
from io import FileIO
from pathlib import Path

from wire import FileStat

PART_SUFFIX = ".part"


def make_folders(below: Path, folder: Path) -> None:
    """Make `folder` and what is missing between it and `below`, each one durable before the next."""
    if folder == below:
        return
    make_folders(below, folder.parent)
    if not folder.is_dir():
        folder.mkdir(exist_ok=True)  # another run may just have made it
        fsync_folder(folder.parent)


def write_atomically(final: Path, content: bytes) -> None:
    """All of `content` under its final name, or nothing, also after a power cut."""
    part = part_of(final)
    try:
        with open_new(part) as writer:
            write_all(writer.fileno(), memoryview(content), 0)
            os.fsync(writer.fileno())
        part.replace(final)
    finally:
        part.unlink(missing_ok=True)
    fsync_folder(final.parent)


def part_of(final: Path) -> Path:
    return final.with_name(f"{final.name}{PART_SUFFIX}")


def open_new(path: Path) -> FileIO:
    # A new file, never one followed through a link or shared by one, whatever a killed run left.
    path.unlink(missing_ok=True)
    return FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644), "r+b")


def write_all(descriptor: int, content: memoryview, offset: int) -> None:
    while content:
        written = os.pwrite(descriptor, content, offset)
        content, offset = content[written:], offset + written


def fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stat_of(opened: FileIO) -> FileStat:
    found = os.fstat(opened.fileno())
    return FileStat(found.st_size, found.st_mtime_ns, found.st_ino)

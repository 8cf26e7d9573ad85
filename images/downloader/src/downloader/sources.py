"""Where a locked file's bytes come from. Here: a folder, which is also how a disk or a share is used."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wire import LockedFile


class Reader(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill some of the buffer; how many bytes. 0 is the end."""
        ...


class Source(Protocol):
    """An OSError raised by any of these, or while reading, means: not now, perhaps later."""

    def where(self, file: LockedFile) -> str:
        """Name the place in words for the operator."""
        ...

    def size_bytes(self, file: LockedFile) -> int:
        """Ask for the size, without reading the file."""
        ...

    def open(self, file: LockedFile) -> AbstractContextManager[Reader]: ...


@dataclass(frozen=True, slots=True)
class FolderSource:
    """Files below `folder` at the lock's relative paths. Symbolic links are followed."""

    folder: Path

    def where(self, file: LockedFile) -> str:
        return f"{self.folder / file.path} (SOURCE_DIR is {self.folder})"

    def size_bytes(self, file: LockedFile) -> int:
        return (self.folder / file.path).stat().st_size

    def open(self, file: LockedFile) -> AbstractContextManager[Reader]:
        return (self.folder / file.path).open("rb", buffering=0)

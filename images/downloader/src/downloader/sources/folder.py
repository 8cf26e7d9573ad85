"""A folder of this host: how a disk or a share is used."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from downloader.sources.base import Fault, Kind, Reader
from wire import LockedFile

NEXT_STEP = (
    "attach the disk or share and put each file at this path below SOURCE_DIR, readable for this "
    "job, then run again: proven files are kept"
)


@dataclass(frozen=True, slots=True)
class FolderSource:
    """Files below `folder` at the lock's relative paths. Symbolic links are followed."""

    folder: Path

    @property
    def name(self) -> str:
        return f"the folder {self.folder}"

    def where(self, file: LockedFile) -> str:
        return f"{self.folder / file.path} (SOURCE_DIR is {self.folder})"

    def look(self, file: LockedFile) -> Fault | None:
        try:
            found_bytes = (self.folder / file.path).stat().st_size
        except OSError as error:
            return _refused(error)
        if found_bytes != file.size_bytes:
            return Fault(Kind.DIFFERENT, f"expected {file.size_bytes} bytes, found {found_bytes}")
        return None

    @contextmanager
    def open(self, file: LockedFile, start: int, stop: int) -> Iterator[Reader]:
        try:
            opened = (self.folder / file.path).open("rb", buffering=0)
        except OSError as error:
            raise _refused(error) from error
        with opened:
            yield Slice(opened, start, stop)


class Readable(Protocol):
    """As much of an unbuffered file as is used."""

    def seek(self, offset: int, /) -> object: ...
    def readinto(self, buffer: memoryview, /) -> int | None: ...


class Slice:
    def __init__(self, opened: Readable, start: int, stop: int) -> None:
        self._opened = opened
        self._left_bytes = stop - start
        opened.seek(start)

    def readinto(self, buffer: memoryview, /) -> int:
        try:
            count = self._opened.readinto(buffer[: self._left_bytes])
        except OSError as error:
            raise _refused(error) from error
        if not count:
            raise Fault(Kind.DIFFERENT, "it became shorter while it was read")
        self._left_bytes -= count
        return count


def _refused(error: OSError) -> Fault:
    return Fault(Kind.REFUSED, error.strerror or str(error), next_step=NEXT_STEP)

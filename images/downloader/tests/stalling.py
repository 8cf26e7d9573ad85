"""The program, with a folder that gives half of the first file, says "half", and waits for a byte.

A test runs it as a process of its own, to stop or kill it in the middle of a part.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from downloader.__main__ import main
from downloader.sources.base import Reader
from downloader.sources.folder import FolderSource
from wire import LockedFile


class HalfThenWait:
    def __init__(self, content: bytes) -> None:
        half = len(content) // 2
        self._pieces = [content[:half], content[half:]]

    def readinto(self, buffer: memoryview, /) -> int:
        if len(self._pieces) == 1:
            sys.stdout.write("half\n")
            sys.stdout.flush()
            os.read(0, 1)
        piece = self._pieces.pop(0)
        buffer[: len(piece)] = piece
        return len(piece)


@contextmanager
def stalling(source: FolderSource, file: LockedFile, start: int, stop: int) -> Iterator[Reader]:
    yield HalfThenWait((source.folder / file.path).read_bytes()[start:stop])


FolderSource.open = stalling  # type: ignore[method-assign, assignment]
sys.exit(main([], os.environ))

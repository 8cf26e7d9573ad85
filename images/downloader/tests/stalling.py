"""The program, with a source that gives half of the first file, says "half", and waits for a line.

A test runs it as a process of its own, to stop or kill it in the middle of a copy.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from downloader.__main__ import main
from downloader.sources import FolderSource, Reader
from wire import LockedFile


class HalfThenWait:
    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        half = len(content) // 2
        self._pieces = [content[:half], content[half:]]
        self._given = 0

    def readinto(self, buffer: memoryview, /) -> int:
        if self._given == len(self._pieces):
            return 0
        if self._given == 1:
            sys.stdout.write("half\n")
            sys.stdout.flush()
            sys.stdin.readline()
        piece = self._pieces[self._given]
        self._given += 1
        buffer[: len(piece)] = piece
        return len(piece)


class StallingSource(FolderSource):
    @contextmanager
    def open(self, file: LockedFile) -> Iterator[Reader]:
        yield HalfThenWait(self.folder / file.path)


sys.exit(main(os.environ, StallingSource))

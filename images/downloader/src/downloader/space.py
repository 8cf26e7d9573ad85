"""Room on the disk: counted before the first byte, and waited for when it runs out on the way."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from downloader.board import Board
from downloader.durable import PART_SUFFIX
from downloader.errors import NotDelivered
from downloader.halt import Halt
from downloader.progress import gigabytes
from wire.order import Phase

LOOK_EVERY_S = 5.0
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: OSError) -> bool:
    return error.errno in _FULL


def free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def require_room(needed_bytes: int, spare_bytes: int, folder: Path, weights_dir: Path) -> None:
    """Nothing needed is always allowed: a full disk must not stop what writes nothing."""
    free = free_bytes(folder)
    if not needed_bytes or needed_bytes + spare_bytes <= free:
        return
    counted = (
        f"needed are {needed_bytes} bytes ({gigabytes(needed_bytes)}) "
        f"and {spare_bytes} bytes to spare, free are {free} bytes ({gigabytes(free)})"
    )
    raise NotDelivered(
        f"too little space in the weights folder {folder}",
        why=(
            counted,
            *(str(holding) for holding in holdings(weights_dir)),
        ),
        next_step=f"free {needed_bytes + spare_bytes - free} bytes there, then run again",
    )


@dataclass(frozen=True, slots=True)
class Holding:
    """What one revision's folder takes, and how much of that is unfinished."""

    name: str
    taken_bytes: int
    unfinished_bytes: int

    def __str__(self) -> str:
        unfinished = (
            f", {gigabytes(self.unfinished_bytes)} of it unfinished"
            if self.unfinished_bytes
            else ""
        )
        return f"{self.name} takes {gigabytes(self.taken_bytes)}{unfinished}"


def holdings(weights_dir: Path) -> Iterator[Holding]:
    for folder in sorted(weights_dir.glob("*/*/")):
        taken = {path: taken_bytes(path) for path in folder.rglob("*")}
        unfinished = sum(size for path, size in taken.items() if path.name.endswith(PART_SUFFIX))
        if total := sum(taken.values()):
            yield Holding(folder.relative_to(weights_dir).as_posix(), total, unfinished)


def taken_bytes(path: Path) -> int:
    """On the disk: a file with holes takes less than its size."""
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0


class Room:
    """Streams that find the disk full meet here; one of them looks, all of them wait."""

    def __init__(
        self, folder: Path, enough_bytes: Callable[[], int], board: Board, halt: Halt
    ) -> None:
        self._folder = folder
        self._enough_bytes = enough_bytes
        self._board = board
        self._halt = halt
        self._lock = threading.Lock()
        self._seen = 0

    def wait(self, error: OSError) -> None:
        seen = self._seen
        with self._lock:
            if seen != self._seen:
                return  # there was room again while this stream waited for its turn
            before = self._board.phase
            # One look at least is waited for: a quota does not show in what is free.
            while True:
                enough, free = self._enough_bytes(), free_bytes(self._folder)
                note = (
                    f"paused: {self._folder} is full ({error.strerror}). Free space there, and "
                    f"this goes on by itself: it needs {gigabytes(enough)}, free are "
                    f"{gigabytes(free)}"
                )
                self._board.enter(Phase.PAUSED, note)
                self._board.trouble(note)
                self._halt.wait(LOOK_EVERY_S)
                if free_bytes(self._folder) >= self._enough_bytes():
                    break
            self._seen += 1
            self._board.enter(Phase.FETCHING if before is Phase.PAUSED else before)
            self._board.trouble(f"there is room in {self._folder} again: going on")

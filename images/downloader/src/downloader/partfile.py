"""One file on its way: `<name>.part`, with holes, and `<name>.part.map`, that says which parts are there.

A part is in the map only after its bytes are on the disk; the name is final only after all of them are.
"""

import os
import stat
import threading
from contextlib import suppress
from io import FileIO
from pathlib import Path

from downloader.durable import fsync_folder, open_new, part_of, stat_of, write_all, write_atomically
from downloader.partmap import Content, finished_parts, header, line, whole
from wire import FileStat

MAP_SUFFIX = ".map"


class PartFile:
    """Threads may write different parts at once. `changed` is notified when a part is finished."""

    def __init__(self, final: Path, content: Content) -> None:
        self.final = final
        self.content = content
        self.changed = threading.Condition(threading.RLock())
        self._part = part_of(final)
        self._map = map_of(final)
        self._file, self.parts = self._resume() or self._start()
        # `O_APPEND` is not used: after a failed write the next one goes over what it left.
        self._map_file = FileIO(os.open(self._map, os.O_RDWR | os.O_NOFOLLOW), "r+b")
        self._map_end = os.fstat(self._map_file.fileno()).st_size
        self._without_gap = 0

    def write(self, chunk: memoryview, offset: int) -> None:
        write_all(self._file.fileno(), chunk, offset)

    def read(self, buffer: memoryview, offset: int) -> int:
        return os.preadv(self._file.fileno(), [buffer], offset)

    def finish(self, index: int) -> None:
        """Bytes first, then the map's line: a map never names what a power cut could take away."""
        os.fdatasync(self._file.fileno())
        words = line(self.content, index)
        with self.changed:
            if index not in self.parts:
                write_all(self._map_file.fileno(), memoryview(words), self._map_end)
                os.fdatasync(self._map_file.fileno())
                self._map_end += len(words)
                self.parts.add(index)
            self.changed.notify_all()

    @property
    def reached(self) -> int:
        """How many bytes from the start on have no gap."""
        with self.changed:
            while self._without_gap in self.parts:
                self._without_gap += 1
            return min(self._without_gap * self.content.part_bytes, self.content.size_bytes)

    @property
    def finished_bytes(self) -> int:
        with self.changed:
            return self.content.bytes_in(self.parts)

    @property
    def missing(self) -> list[int]:
        return [index for index in range(self.content.count) if index not in self.parts]

    def publish(self) -> FileStat:
        """All bytes, proven by the caller, under their final name."""
        os.fsync(self._file.fileno())
        found = stat_of(self._file)
        self._part.replace(self.final)
        self._forget_map()
        return found

    def discard(self) -> None:
        self._part.unlink(missing_ok=True)
        self._forget_map()

    def close(self) -> None:
        self._file.close()
        self._map_file.close()

    def _forget_map(self) -> None:
        fsync_folder(self.final.parent)
        self._map.unlink(missing_ok=True)

    def _resume(self) -> tuple[FileIO, set[int]] | None:
        try:
            parts = finished_parts(self.content, _read_map(self._map, self.content))
            opened = FileIO(os.open(self._part, os.O_RDWR | os.O_NOFOLLOW), "r+b")
        except OSError:
            return None
        found = os.fstat(opened.fileno())
        ours = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
        if parts is None or not ours or found.st_size != self.content.size_bytes:
            opened.close()
            return None
        # Written anew, since the next line must not follow a torn one.
        write_atomically(self._map, whole(self.content, parts))
        return opened, parts

    def _start(self) -> tuple[FileIO, set[int]]:
        # The old map goes first, and for good: it must not be believed of the new, empty file.
        self._map.unlink(missing_ok=True)
        fsync_folder(self.final.parent)
        opened = open_new(self._part)
        try:
            # Holes, not zeros: the disk's space is taken as bytes arrive.
            os.ftruncate(opened.fileno(), self.content.size_bytes)
            os.fsync(opened.fileno())
            write_atomically(self._map, header(self.content))
        except BaseException:
            opened.close()
            with suppress(OSError):
                self._part.unlink()
            raise
        return opened, set()


def map_of(final: Path) -> Path:
    part = part_of(final)
    return part.with_name(f"{part.name}{MAP_SUFFIX}")


def bytes_on_disk(final: Path, content: Content) -> int:
    """How many bytes of finished parts are here, as far as the map tells."""
    try:
        if part_of(final).lstat().st_size != content.size_bytes:
            return 0
        parts = finished_parts(content, _read_map(map_of(final), content))
    except OSError:
        return 0
    return content.bytes_in(parts or set())


def make_part_of(final: Path, content: Content) -> None:
    """Take a wrong file of the right size out of use, and keep its bytes as parts to be compared."""
    final.replace(part_of(final))
    fsync_folder(final.parent)
    write_atomically(map_of(final), whole(content, set(range(content.count))))


def _read_map(path: Path, content: Content) -> bytes:
    limit = len(header(content)) + 64 * (content.count + 16)
    with FileIO(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as opened:
        return opened.read(limit)

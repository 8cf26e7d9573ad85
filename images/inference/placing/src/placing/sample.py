"""Where the cached pages of files lie, by a sample: without reading anything that is not cached."""

import ctypes
import math
import mmap
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from wire.numa import areas, as_planned

PAGE = mmap.PAGESIZE
# 16 pages: what one fault maps of the page cache (fault_around_bytes in mm/memory.c).
WINDOW_BYTES = 16 * PAGE
WINDOWS = 1024
# Its multiples, less whole numbers, fall evenly and in no step with any pattern of the pages.
GOLDEN = 0.6180339887498949


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


@dataclass(frozen=True, slots=True)
class Sample:
    """`cached`: the share of the sampled pages that is in memory. `node_bytes`: where those lie."""

    cached: float
    windows: int
    node_bytes: Mapping[int, int]

    def lies_on(self, nodes: Collection[int]) -> bool:
        """In equal parts, as far as a sample can tell."""
        part = 1 / len(nodes)
        # Four standard deviations, were each window wholly on one node: 1 in 30 000 by chance.
        chance = 4 * math.sqrt(part * (1 - part) / max(1, self.windows))
        return as_planned(self.node_bytes, nodes, int(chance * sum(self.node_bytes.values())))


def sample(files: Sequence[Path], windows: int = WINDOWS) -> Sample:
    """Raises OSError where a file or this process's own numa_maps can't be read."""
    looked = 0
    cached = 0
    with ExitStack() as stack:
        places = tuple(_windows(files, windows))
        for path, offset, length in places:
            address = stack.enter_context(_mapped(path, offset, length))
            resident = _resident(address, length)
            looked += len(resident)
            for page in (at for at, flag in enumerate(resident) if flag & 1):
                # So that it stands in the page table, and so in numa_maps.
                ctypes.string_at(address + page * PAGE, 1)
                cached += 1
        nodes = _nodes_of({str(path.resolve()) for path in files})
    return Sample(cached / looked if looked else 1.0, len(places), nodes)


def _windows(files: Sequence[Path], count: int) -> Iterator[tuple[Path, int, int]]:
    """File, offset and length of windows that lie evenly over all bytes of all files."""
    sizes = [path.stat().st_size for path in files]
    ends = list(accumulate(sizes))
    step = max(WINDOW_BYTES, sum(sizes) // count)
    for number in range(sum(sizes) // step):
        at = int((number + number * GOLDEN % 1) * step)
        file = bisect_right(ends, at)
        if file < len(files):
            offset = (at - (ends[file] - sizes[file])) // WINDOW_BYTES * WINDOW_BYTES
            yield files[file], offset, min(WINDOW_BYTES, sizes[file] - offset)


@contextmanager
def _mapped(path: Path, offset: int, length: int) -> Iterator[int]:
    """The address. Not mmap.mmap: each of those keeps a file open, and the limit may be 1024."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        address = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, offset)
    finally:
        os.close(fd)
    if address == ctypes.c_void_p(-1).value:
        raise _failure()
    try:
        _libc.madvise(address, length, mmap.MADV_RANDOM)  # touching a page reads no other ahead
        yield address
    finally:
        _libc.munmap(address, length)


def _resident(address: int, length: int) -> bytes:
    """One byte a page; its lowest bit: is the page in memory? mincore(2)"""
    flags = (ctypes.c_ubyte * -(-length // PAGE))()
    if _libc.mincore(address, length, flags):
        raise _failure()
    return bytes(flags)


def _failure() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def _nodes_of(files: set[str]) -> Mapping[int, int]:
    nodes: Counter[int] = Counter()
    for area in areas(Path("/proc/self/numa_maps").read_text(encoding="utf-8", errors="replace")):
        if area.file in files:
            nodes.update(area.node_bytes)
    return dict(nodes)

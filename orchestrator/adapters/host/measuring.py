"""How fast a disk really reads, past the page cache."""

import mmap
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from orchestrator.adapters.host.disks import existing

BLOCK_BYTES = 4 << 20
SAMPLE_BYTES = 64 << 20
MOST_BYTES = 1 << 30
WITHIN_S = 2.0
LOOKED_AT = 1000  # files; the weights of a model are a few dozen


def measure_disk(folder: Path) -> float | None:
    """Bytes a second of a large file there, or of one written for this; None where it can't be told."""
    there = existing(folder)
    if there is None:
        return None
    try:
        large = _large_file(there)
        return _rate(large) if large else _rate_of_a_new_file(there)
    except OSError:  # the file system reads through the page cache only, is full, or not ours
        return None


def _large_file(folder: Path) -> Path | None:
    found = (path for path, _ in zip(folder.rglob("*"), range(LOOKED_AT), strict=False))
    return next(
        (
            path
            for path in found
            if path.is_file() and not path.is_symlink() and _has_a_sample(path)
        ),
        None,
    )


def _has_a_sample(path: Path) -> bool:
    """Holes of a sparse file are read from nowhere, and quickly."""
    stat = path.stat()
    return stat.st_size >= SAMPLE_BYTES and stat.st_blocks * 512 >= SAMPLE_BYTES


def _rate_of_a_new_file(folder: Path) -> float | None:
    descriptor, name = tempfile.mkstemp(prefix=".read-rate-", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            # Random bytes: some disks and file systems don't store what is all alike.
            for _ in range(SAMPLE_BYTES // BLOCK_BYTES):
                file.write(os.urandom(BLOCK_BYTES))
            file.flush()
            os.fsync(file.fileno())
        return _rate(Path(name))
    finally:
        with suppress(OSError):
            Path(name).unlink()


def _rate(path: Path) -> float | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    # O_DIRECT wants memory that begins on a block's border, as a mapping of its own does.
    block = mmap.mmap(-1, BLOCK_BYTES)
    try:
        read_bytes, start = 0, time.perf_counter()
        while read_bytes < MOST_BYTES and time.perf_counter() - start < WITHIN_S:
            got = os.preadv(descriptor, [block], read_bytes)
            read_bytes += got
            if got < BLOCK_BYTES:
                break
        spent = time.perf_counter() - start
    finally:
        block.close()
        os.close(descriptor)
    return read_bytes / spent if read_bytes and spent else None

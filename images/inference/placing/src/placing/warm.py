"""Brings the weights into the page cache under the memory policy in force, where they lie otherwise.

They may: whoever read them before, as the proof of the download did, read them under its own policy,
and a cached page stays on its node. Nothing but a new read under the right policy moves it.
"""

import os
import time
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from pathlib import Path

from placing.nodes import nodes_with_memory
from placing.policy import Policy, listed
from placing.sample import Sample, sample

CHUNK_BYTES = 8 << 20
TOLD_EVERY_S = 10.0
CACHED = 0.99
SEVERAL = 2

Say = Callable[[str], None]


class Need(Enum):
    NOTHING = "they are in memory as planned"
    READ = "they are not all in memory"
    DROP_AND_READ = "they lie otherwise than planned"


def need(found: Sample, nodes: Collection[int]) -> Need:
    """What to do so that all pages lie as planned."""
    if not found.lies_on(nodes):
        return Need.DROP_AND_READ
    return Need.NOTHING if found.cached >= CACHED else Need.READ


def warm(files: Sequence[Path], policy: Policy, nodes: Collection[int], say: Say) -> None:
    """Call it with the policy in force. Raises OSError when a file can't be read."""
    if policy not in {"one node", "interleave"} or len(nodes_with_memory() or ()) < SEVERAL:
        return
    to_do = need(sample(files), nodes)
    if to_do is Need.NOTHING:
        say(f"weights: {to_do.value}, on nodes {listed(nodes)}")
        return
    say(f"weights: {to_do.value} ({policy}, nodes {listed(nodes)})")
    if to_do is Need.DROP_AND_READ:
        _drop(files, say)
    read(files, say)


def _drop(files: Sequence[Path], say: Say) -> None:
    for path in files:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
    # A page that another process has mapped stays: the kernel drops only what nobody uses.
    if (left := sample(files).cached) > 1 - CACHED:
        say(f"weights: {100 * left:.0f} % stay in memory where they are: another program uses them")


def read(files: Sequence[Path], say: Say, clock: Callable[[], float] = time.monotonic) -> None:
    """From the first byte to the last, through one buffer."""
    total = sum(path.stat().st_size for path in files)
    buffer = bytearray(CHUNK_BYTES)
    began = told = clock()
    done = 0
    for path in files:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while size := file.readinto(buffer):
                done += size
                if (now := clock()) - told >= TOLD_EVERY_S:
                    told = now
                    say(_progress(done, total, now - began))
    say(_progress(done, total, clock() - began))


def _progress(done: int, total: int, seconds: float) -> str:
    line = f"weights: {done / 1e9:.1f} of {total / 1e9:.1f} GB read into memory"
    if not done or not seconds:
        return line
    rate = done / seconds
    left_s = (total - done) / rate
    left = f", {left_s / 60:.0f} min left" if done < total else f" in {seconds:.0f} s"
    return f"{line}, {rate / 1e9:.2f} GB/s{left}"

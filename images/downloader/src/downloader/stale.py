"""Unfinished files that no current order will finish: found and told, removed only when asked to."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from downloader.durable import PART_SUFFIX
from downloader.exclusive import CLAIM_NAME, claimed_now
from downloader.partfile import MAP_SUFFIX
from downloader.progress import gigabytes
from downloader.space import taken_bytes
from downloader.unpacking import unfinished
from wire import Lock

_SUFFIXES = (PART_SUFFIX, f"{PART_SUFFIX}{MAP_SUFFIX}")


@dataclass(frozen=True, slots=True)
class Stale:
    path: Path
    taken_bytes: int

    def __str__(self) -> str:
        return f"{self.path} ({gigabytes(self.taken_bytes)})"


def find_stale(weights_dir: Path, lock: Lock) -> Iterator[Stale]:
    """Every unfinished file below the weights folder, except those of `lock`."""
    folder = weights_dir / lock.folder
    ours = {path for file in lock.files for path in unfinished(folder / file.path)}
    for path in sorted(weights_dir.glob("*/*/**/*")):
        if path.name.endswith(_SUFFIXES) and path not in ours and not path.is_dir():
            yield Stale(path, taken_bytes(path))


def remove_stale(weights_dir: Path, lock: Lock) -> Iterator[str]:
    """Remove them, except in a folder where another run is at work; a line for each."""
    for stale in find_stale(weights_dir, lock):
        owner, revision, *_ = stale.path.relative_to(weights_dir).parts
        with claimed_now(weights_dir / owner / revision / CLAIM_NAME) as free:
            if free:
                stale.path.unlink(missing_ok=True)
                yield f"removed {stale}"
            else:
                yield f"kept {stale}: another run is at work there"

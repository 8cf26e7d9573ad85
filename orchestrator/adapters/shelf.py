"""Revisions in the weights folder, as they are on this disk."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from orchestrator.core.errors import BadConfiguration
from orchestrator.core.shelf import Revision
from wire import FileStat, read_receipt
from wire.on_disk import PART_SUFFIX, RECEIPT_NAME

BLOCK_BYTES = 512  # what st_blocks counts in, whatever the file system's own block is


def read_revisions(weights: Path) -> tuple[Revision, ...]:
    """Every `owner--name/revision12` folder."""
    return tuple(_read(folder, weights) for folder in sorted(_folders(weights)))


def remove(revision: Revision, weights: Path) -> None:
    """The proof goes first: what is half removed must not pass for whole."""
    folder = weights / revision.folder
    try:
        (folder / RECEIPT_NAME).unlink(missing_ok=True)
        shutil.rmtree(folder)
        if not any(folder.parent.iterdir()):
            folder.parent.rmdir()
    except OSError as error:
        raise BadConfiguration(
            f"{folder} can't be removed", why=str(error), next_step=f"sudo rm -r {folder}"
        ) from error


def _folders(weights: Path) -> Iterator[Path]:
    for repo in weights.glob("*--*"):
        if repo.is_dir() and not repo.is_symlink():
            yield from (path for path in repo.iterdir() if path.is_dir() and not path.is_symlink())


def _read(folder: Path, weights: Path) -> Revision:
    stats: dict[str, FileStat] = {}
    disk_bytes = part_bytes = 0
    for path in folder.rglob("*"):
        try:
            found = path.lstat()
        except FileNotFoundError:  # a running job has renamed it
            continue
        if not path.is_file():
            continue
        stats[str(path.relative_to(folder))] = FileStat(
            found.st_size, found.st_mtime_ns, found.st_ino
        )
        disk_bytes += found.st_blocks * BLOCK_BYTES
        part_bytes += found.st_blocks * BLOCK_BYTES if path.name.endswith(PART_SUFFIX) else 0
    return Revision(
        folder=str(folder.relative_to(weights)),
        disk_bytes=disk_bytes,
        part_bytes=part_bytes,
        receipt=read_receipt(folder),
        stats=stats,
    )

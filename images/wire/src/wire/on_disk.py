"""A revision's folder as it is on this disk: its receipt, and the state of its files."""

from pathlib import Path

from pydantic import ValidationError

from wire.weights import FileStat, Lock, Receipt

RECEIPT_NAME = "receipt.json"
PART_SUFFIX = ".part"  # of a file on its way: same name, with holes


def read_receipt(folder: Path) -> Receipt | None:
    """The folder's receipt; None where there is none or where it can't be read as one: then nothing is proven."""
    try:
        return Receipt.model_validate_json((folder / RECEIPT_NAME).read_bytes())
    except (OSError, ValidationError):
        return None


def stat_files(folder: Path, lock: Lock) -> dict[str, FileStat | None]:
    """The state of every file that `lock` names; None for one that is not there."""
    return {file.path: _stat(folder / file.path) for file in lock.files}


def missing_bytes(folder: Path, lock: Lock) -> int:
    """Disk space the lock's files will still take: of what is on its way, only the holes count."""
    stats = stat_files(folder, lock)
    return sum(
        max(0, file.size_bytes - _allocated_bytes(folder / f"{file.path}{PART_SUFFIX}"))
        for file in lock.files
        if (seen := stats[file.path]) is None or seen.size_bytes != file.size_bytes
    )


def _allocated_bytes(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except OSError:
        return 0


def _stat(path: Path) -> FileStat | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return FileStat(found.st_size, found.st_mtime_ns, found.st_ino)

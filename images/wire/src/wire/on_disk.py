"""A revision's folder as it is on this disk: its receipt, and the state of its files."""

from pathlib import Path

from pydantic import ValidationError

from wire.weights import FileStat, Lock, Receipt

RECEIPT_NAME = "receipt.json"


def read_receipt(folder: Path) -> Receipt | None:
    """The folder's receipt; None where there is none or where it can't be read as one: then nothing is proven."""
    try:
        return Receipt.model_validate_json((folder / RECEIPT_NAME).read_bytes())
    except (OSError, ValidationError):
        return None


def stat_files(folder: Path, lock: Lock) -> dict[str, FileStat | None]:
    """The state of every file that `lock` names; None for one that is not there."""
    return {file.path: _stat(folder / file.path) for file in lock.files}


def _stat(path: Path) -> FileStat | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return FileStat(found.st_size, found.st_mtime_ns, found.st_ino)

"""What tests of publishing ask of a folder, and do to its files."""

from pathlib import Path

from wire import Lock, discrepancies, read_receipt, stat_files


def is_proven(lock: Lock, folder: Path) -> bool:
    return not list(discrepancies(lock, read_receipt(folder), stat_files(folder, lock)))


def leftovers(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.part"))


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def same_content(lock: Lock, one: Path, other: Path) -> bool:
    return all(
        (one / file.path).read_bytes() == (other / file.path).read_bytes() for file in lock.files
    )

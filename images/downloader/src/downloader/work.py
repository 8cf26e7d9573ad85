"""What has to be done, decided from lock, receipt and file states. Touches nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from wire import FileStat, Lock, LockedFile, ProvenFile, Receipt, discrepancies


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Every locked file is in exactly one of the three."""

    kept: tuple[ProvenFile, ...]
    to_check: tuple[LockedFile, ...]
    to_fetch: tuple[LockedFile, ...]


def work_for(lock: Lock, receipt: Receipt | None, stats: Mapping[str, FileStat | None]) -> Work:
    """Keep what is proven, check what has the right size, fetch the rest."""
    unproven = {found.path for found in discrepancies(lock, receipt, stats)}
    proofs = (
        {}
        if receipt is None or None in unproven
        else {proof.path: proof for proof in receipt.files if proof.path not in unproven}
    )
    open_files = [file for file in lock.files if file.path not in proofs]
    return Work(
        kept=tuple(proofs[file.path] for file in lock.files if file.path in proofs),
        to_check=tuple(file for file in open_files if _has_its_size(file, stats)),
        to_fetch=tuple(file for file in open_files if not _has_its_size(file, stats)),
    )


def receipt_for(
    lock: Lock,
    proven: tuple[ProvenFile, ...],
    older: Receipt | None,
    stats: Mapping[str, FileStat | None],
) -> Receipt:
    """Join what was proven now and what the older receipt still proves of other locks' files."""
    ours = {file.path for file in proven}
    theirs = (
        ()
        if older is None or (older.repo, older.revision) != (lock.repo, lock.revision)
        else tuple(
            file
            for file in older.files
            if file.path not in ours and stats.get(file.path) == file.stat
        )
    )
    files = sorted((*proven, *theirs), key=lambda file: file.path)
    return Receipt(repo=lock.repo, revision=lock.revision, files=tuple(files))


def _has_its_size(file: LockedFile, stats: Mapping[str, FileStat | None]) -> bool:
    seen = stats.get(file.path)
    return seen is not None and seen.size_bytes == file.size_bytes

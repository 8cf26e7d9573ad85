"""A proven folder of weights, as the engine's container has it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wire import Lock, LockedFile, Receipt
from wire.weights import ProvenFile

_REVISION = "0" * 40


@dataclass(frozen=True)
class Weights:
    """`lock`: its file. Folders are relative to the proven one.

    `model_dir`: of config.json and the tokenizer, where the weights' header does not tell them.
    """

    lock: Path
    weights_dir: Path
    gguf_dir: str = "weights"
    model_dir: str | None = None


def folder_of(repo: str) -> str:
    """Where files of `repo` lie below the folder of all weights."""
    return f"{repo.replace('/', '--')}/{_REVISION[:12]}"


def receipted(repo: str, work: Path, digests: Mapping[str, str]) -> Weights:
    """Of the files that lie in the proven folder: path -> SHA-256, as the lock is to have it."""
    folder = work / folder_of(repo)
    stats = {path: (folder / path).stat() for path in digests}
    locked = tuple(
        LockedFile(path=path, size_bytes=stats[path].st_size, sha256=digest)
        for path, digest in digests.items()
    )
    lock = Lock(repo=repo, revision=_REVISION, files=locked)
    assert folder == work / lock.folder
    proven = tuple(
        ProvenFile(
            **file.model_dump(),
            mtime_ns=stats[file.path].st_mtime_ns,
            inode=stats[file.path].st_ino,
        )
        for file in locked
    )
    receipt = Receipt(repo=repo, revision=_REVISION, files=proven)
    (folder / "receipt.json").write_text(receipt.model_dump_json())
    lock_file = work / "lock.json"
    lock_file.write_text(lock.model_dump_json())
    return Weights(lock_file, work)

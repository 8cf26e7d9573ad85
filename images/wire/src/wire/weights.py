"""The files one model revision is made of (lock), and the proof that they are on this disk (receipt)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _relative_path(path: str) -> str:
    pure = PurePosixPath(path)
    plain = str(pure) == path != "." and path.isprintable()
    if pure.is_absolute() or ".." in pure.parts or not plain:
        message = f"{path!r} is not a plain relative path"
        raise ValueError(message)
    return path


RelativePath = Annotated[str, AfterValidator(_relative_path)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Repo = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")]
Revision = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class LockedFile(BaseModel):
    """What one file of the revision must be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: RelativePath
    size_bytes: int = Field(ge=0)
    sha256: Sha256


def _distinct(files: tuple[LockedFile, ...]) -> tuple[LockedFile, ...]:
    paths = [file.path for file in files]
    if twice := sorted({path for path in paths if paths.count(path) > 1}):
        message = f"named more than once: {', '.join(twice)}"
        raise ValueError(message)
    return files


class Lock(BaseModel):
    """Every weight file of one model revision, pinned by content. One JSON file each in `configs/locks`.

    `locked_at` and `locked_from`: when it was made, and who published the hashes. For the reader only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    repo: Repo
    revision: Revision
    files: Annotated[tuple[LockedFile, ...], Field(min_length=1), AfterValidator(_distinct)]
    locked_at: str | None = None
    locked_from: str | None = None

    def pins_the_same(self, other: "Lock") -> bool:
        """Do both ask for the same bytes under the same names?"""
        return (self.repo, self.revision, set(self.files)) == (
            other.repo,
            other.revision,
            set(other.files),
        )

    @property
    def folder(self) -> str:
        """The revision's folder below the weights folder: `owner--name/revision12`."""
        return f"{self.repo.replace('/', '--')}/{self.revision[:12]}"

    @property
    def count(self) -> str:
        """How many files, in words."""
        return "1 file" if len(self.files) == 1 else f"{len(self.files)} files"

    @property
    def total_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class FileStat:
    """What the file system says of one file. It changes whenever somebody writes or replaces the file."""

    size_bytes: int
    mtime_ns: int
    inode: int


class ProvenFile(BaseModel):
    """One file as it was when its bytes were hashed and found right."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: RelativePath
    size_bytes: int
    sha256: Sha256
    mtime_ns: int
    inode: int

    @property
    def stat(self) -> FileStat:
        return FileStat(self.size_bytes, self.mtime_ns, self.inode)


class Receipt(BaseModel):
    """`receipt.json` of a revision's folder: written last, after every file in it was proven.

    It may hold more files than one lock asks for: two quantisations of one revision share a folder.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    repo: Repo
    revision: Revision
    files: tuple[ProvenFile, ...]


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """One reason why a receipt does not prove a lock. `path` is None where it concerns the receipt itself."""

    path: str | None
    why: str

    def __str__(self) -> str:
        return self.why if self.path is None else f"{self.path}: {self.why}"


def discrepancies(
    lock: Lock, receipt: Receipt | None, stats: Mapping[str, FileStat | None]
) -> Iterator[Discrepancy]:
    """Every reason why `receipt`, with the files as `stats` shows them, does not prove `lock`. None means proven."""
    if receipt is None:
        yield Discrepancy(None, "there is no readable receipt")
        return
    if (receipt.repo, receipt.revision) != (lock.repo, lock.revision):
        yield Discrepancy(
            None,
            f"the receipt is for {receipt.repo}@{receipt.revision[:12]}, "
            f"the lock for {lock.repo}@{lock.revision[:12]}",
        )
        return
    proven = {file.path: file for file in receipt.files}
    for file in lock.files:
        if why := _why_not_proven(file, proven.get(file.path), stats.get(file.path)):
            yield Discrepancy(file.path, why)


def _why_not_proven(
    file: LockedFile, proof: ProvenFile | None, seen: FileStat | None
) -> str | None:
    if seen is None:
        return "the file is missing"
    if proof is None:
        return "the receipt does not name it"
    if (proof.size_bytes, proof.sha256) != (file.size_bytes, file.sha256):
        return f"the receipt proves sha256 {proof.sha256}, the lock asks for {file.sha256}"
    if seen != proof.stat:
        return "the file was changed after it was proven (size, modification time or inode differ)"
    return None

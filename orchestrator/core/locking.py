"""From what hubs publish to a lock: which files, what they must be, and whether two hubs agree."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from typing_extensions import assert_never

from orchestrator.core.errors import BadConfiguration, FetchFailed, VerificationFailed
from wire import Lock, LockedFile
from wire.order import Folder as MountedFolder
from wire.order import HttpFolder, HuggingFace, ModelScope, Source, WheelMember

SHARD = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<end>\.[^/]*)$")
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One file as a source describes it; None where it does not say.

    Of a small file a hub gives git's hash only, of others no hash but the sha256.
    """

    path: str
    size_bytes: int | None = None
    sha256: str | None = None
    git_sha1: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What one source says it has. `commit`: what it calls the revision; "" where it has none."""

    source: str
    repo: str
    commit: str
    files: tuple[Published, ...]


class SourceUnavailable(Exception):
    """A source can't be used: one answer of several, no end by itself.

    `lasting`: waiting would not help. `again_after_s`: it answers, and asks for a little patience.
    """

    def __init__(
        self,
        said: str,
        *,
        next_step: str = "",
        lasting: bool = False,
        again_after_s: float | None = None,
    ) -> None:
        super().__init__(said)
        self.said = said
        self.next_step = next_step
        self.lasting = lasting
        self.again_after_s = again_after_s


def describe(source: Source) -> str:
    """The source in a few words, without what a URL may hold of secrets."""
    match source:
        case HuggingFace() | ModelScope():
            return f"{source.kind} ({_host(source.endpoint)})"
        case HttpFolder():
            return f"{_host(source.url)}{urlsplit(source.url).path}"
        case WheelMember():
            return f"the wheel {urlsplit(source.url).path.rsplit('/', 1)[-1]}"
        case MountedFolder():
            return "the folder"
        case _:
            assert_never(source)


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def choose(listing: Listing, patterns: Sequence[str]) -> Listing:
    """The listing's files that any pattern names. Raises for a pattern that names none."""
    chosen: set[str] = set()
    paths = [file.path for file in listing.files]
    for pattern in patterns:
        whole = f"{pattern}*" if pattern.endswith("/") else pattern
        if not (found := {path for path in paths if fnmatchcase(path, whole)}):
            raise _no_match(listing, pattern, paths)
        chosen |= found
    _refuse_gaps(listing, chosen)
    return replace(listing, files=tuple(file for file in listing.files if file.path in chosen))


def _no_match(listing: Listing, pattern: str, paths: Sequence[str]) -> BadConfiguration:
    names = sorted({*paths, *(f"{PurePosixPath(path).parent}/" for path in paths if "/" in path)})
    near = get_close_matches(pattern, names, n=3, cutoff=0.4)
    return BadConfiguration(
        f"the pattern {pattern!r} matches no file",
        why=f"{listing.source} has {len(paths)} files of {listing.repo}"
        + (f"; near: {', '.join(near)}" if near else ""),
        next_step="correct `patterns` in the profile",
    )


def _refuse_gaps(listing: Listing, chosen: Iterable[str]) -> None:
    if gaps := tuple(missing_shards(chosen)):
        raise FetchFailed(
            f"{listing.repo} lacks shards",
            why=f"{listing.source} does not have {'; '.join(gaps)}",
            next_step="see whether `patterns` in the profile leaves them out; if not, the repository "
            "is incomplete: wait for its owner, or choose another revision",
        )


def missing_shards(paths: Iterable[str]) -> Iterator[str]:
    """Of every split file, `-00002-of-00009` and so on, the numbers that are not there, in words."""
    numbers: dict[tuple[str, int, str], set[int]] = defaultdict(set)
    for path in paths:
        if found := SHARD.match(path):
            numbers[found["stem"], int(found["count"]), found["end"]].add(int(found["number"]))
    for (stem, count, end), have in sorted(numbers.items()):
        if wrong := sorted(set(range(1, count + 1)) ^ have):
            listed = ", ".join(f"{number:05d}" for number in wrong)
            yield f"{stem}-NNNNN-of-{count:05d}{end}: {listed}"


def make_lock(listing: Listing, *, at: str, published_by: Sequence[str]) -> Lock:
    """Pin the listing. Raises FetchFailed where a file's sha256 was never published or computed."""
    files = []
    for file in sorted(listing.files, key=lambda file: file.path):
        if file.sha256 is None or file.size_bytes is None:
            raise FetchFailed(
                "no lock can be made",
                why=f"{listing.source} publishes no sha256 and size of {file.path}",
                next_step="add a source to the profile that does",
            )
        files.append(LockedFile(path=file.path, size_bytes=file.size_bytes, sha256=file.sha256))
    commit = listing.commit if COMMIT.fullmatch(listing.commit) else content_revision(files)
    return Lock(
        repo=listing.repo,
        revision=commit,
        files=tuple(files),
        locked_at=at,
        locked_from=", ".join(published_by),
    )


def content_revision(files: Iterable[LockedFile]) -> str:
    """A revision for files that no commit names: a digest of what they are."""
    said = "".join(f"{file.sha256}  {file.path}\n" for file in sorted(files, key=lambda f: f.path))
    return hashlib.sha256(said.encode()).hexdigest()[:40]


def has_a_commit(lock: Lock) -> bool:
    """Is the lock's revision one that a hub knows?"""
    return lock.revision != content_revision(lock.files)


def disagreements(expected: Iterable[Published], listing: Listing) -> Iterator[str]:
    """How the listing's files differ from the expected ones, one line a file. Sizes count too."""
    there = {file.path: file for file in listing.files}
    for file in expected:
        other = there.get(file.path)
        if other is None:
            yield f"{file.path}: not there"
        elif _differ(file.size_bytes, other.size_bytes):
            yield f"{file.path}: {file.size_bytes} bytes, or {other.size_bytes} bytes"
        elif _differ(file.sha256, other.sha256):
            yield f"{file.path}: sha256 {file.sha256}, or {other.sha256}"


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


def refuse_disagreement(first: Listing, second: Listing) -> None:
    """Raise where two hubs publish different hashes: before either is used."""
    if found := tuple(disagreements(first.files, second)):
        raise VerificationFailed(
            "two sources publish different files under the same names",
            why=f"{first.source}, or {second.source}: {'; '.join(found)}",
            next_step="find out which is right, and take the other out of the profile's sources",
        )


def as_published(lock: Lock) -> tuple[Published, ...]:
    return tuple(
        Published(path=file.path, size_bytes=file.size_bytes, sha256=file.sha256)
        for file in lock.files
    )


def lock_diff(old: Lock, new: Lock) -> str:
    """What an update changes, for the eye; empty where nothing does."""
    before = {file.path: file for file in old.files}
    after = {file.path: file for file in new.files}
    lines = []
    if (old.repo, old.revision) != (new.repo, new.revision):
        lines.append(f"  {old.repo}@{old.revision[:12]} -> {new.repo}@{new.revision[:12]}")
    for path in sorted({*before, *after}):
        was, now = before.get(path), after.get(path)
        if was == now:
            continue
        lines += [f"- {_described(was)}"] if was else []
        lines += [f"+ {_described(now)}"] if now else []
    return "".join(f"{line}\n" for line in lines)


def _described(file: LockedFile) -> str:
    return f"{file.path}  {file.size_bytes} bytes  sha256 {file.sha256}"

"""What the weights folder holds: revisions, how much of each is proven, and who needs them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.core.errors import BadConfiguration
from wire import FileStat, Lock, Receipt, discrepancies


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One folder, `owner--name/revision12`. `part_bytes`: of `disk_bytes`, what is not complete."""

    folder: str
    disk_bytes: int
    part_bytes: int
    receipt: Receipt | None
    stats: Mapping[str, FileStat]
    users: Sequence[str] = field(default=())


def proven_count(revision: Revision) -> tuple[int, int]:
    """Of the files that the receipt names, how many still are as they were proven, and all."""
    if revision.receipt is None:
        return 0, 0
    proven = [f for f in revision.receipt.files if revision.stats.get(f.path) == f.stat]
    return len(proven), len(revision.receipt.files)


def complete_profiles(revision: Revision, locks: Mapping[str, Lock]) -> tuple[str, ...]:
    """Profiles whose every file is proven in this folder."""
    return tuple(
        name
        for name, lock in locks.items()
        if lock.folder == revision.folder
        and not any(discrepancies(lock, revision.receipt, revision.stats))
    )


def as_row(revision: Revision, locks: Mapping[str, Lock]) -> tuple[str, str, str, str]:
    """Folder, size, state, and what it is for."""
    sound, named = proven_count(revision)
    state = f"{sound} of {named} files proven" if sound != named else f"{named} files proven"
    state = state if named else "nothing proven"
    if revision.part_bytes:
        state += f", {_gb(revision.part_bytes)} unfinished"
    complete = complete_profiles(revision, locks)
    uses = [
        name if name in complete else f"{name} (incomplete)"
        for name, lock in locks.items()
        if lock.folder == revision.folder
    ]
    uses += [f"in use by {user}" for user in revision.users]
    used_by = ", ".join(uses) or "no profile: an earlier revision?"
    return revision.folder, _gb(revision.disk_bytes), state, used_by


def find(name: str, revisions: Sequence[Revision]) -> Revision:
    """The one revision that `name` means: its folder, or a beginning of it that no other has."""
    found = [r for r in revisions if r.folder == name] or [
        r for r in revisions if r.folder.startswith(name)
    ]
    if len(found) == 1:
        return found[0]
    there = ", ".join(r.folder for r in revisions) or "nothing"
    raise BadConfiguration(
        f"{name!r} is no revision here" if not found else f"{name!r} means more than one revision",
        why=f"the weights folder holds {there}",
        next_step="python3 -m orchestrator weights list",
    )


def refuse_removal(revision: Revision, *, agreed: bool) -> None:
    """Raise where it is in use, or where nobody said yes."""
    if revision.users:
        raise BadConfiguration(
            f"{revision.folder} is in use",
            why=f"{' and '.join(revision.users)} has it open",
            next_step="python3 -m orchestrator down, or pull --stop for a download",
        )
    if not agreed:
        raise BadConfiguration(
            f"{_gb(revision.disk_bytes)} would be removed: {revision.folder}",
            why="weights take long to fetch again, so this wants a yes",
            next_step=f"python3 -m orchestrator weights remove {revision.folder} --yes",
        )


def _gb(count: int) -> str:
    return f"{count / 1e9:.2f} GB"

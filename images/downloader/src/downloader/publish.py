"""From a source to proven files under their final names, and the receipt last."""

import os
from collections.abc import Iterator
from pathlib import Path

from downloader.copying import (
    PART_SUFFIX,
    Mismatch,
    adopt,
    fetch,
    make_folders,
    part_of,
    write_atomically,
    wrong_size,
)
from downloader.errors import ConfigurationInvalid, NotDelivered, VerificationFailed, writing_to
from downloader.exclusive import CLAIM_NAME, exclusive
from downloader.progress import Progress, duration
from downloader.sources import Source
from downloader.work import receipt_for, work_for
from downloader.world import World
from wire import (
    FileStat,
    Lock,
    LockedFile,
    ProvenFile,
    Receipt,
    discrepancies,
    read_receipt,
    stat_files,
)
from wire.on_disk import RECEIPT_NAME


def publish(lock: Lock, source: Source, weights_dir: Path, world: World) -> None:
    """Make the lock's files present and proven below `weights_dir`, or raise a Failure."""
    _refuse_names_of_ours(lock)
    folder = weights_dir / lock.folder
    if _said_already_proven(lock, folder, world):
        return
    with writing_to(weights_dir):
        if not weights_dir.is_dir():
            raise ConfigurationInvalid(
                f"WEIGHTS_DIR {weights_dir} is not a folder",
                why=("the job makes folders only below it, so as not to fill the wrong disk",),
                next_step="mount the weights folder there, then run again",
            )
        make_folders(weights_dir, folder)
        with exclusive(folder, world):
            if not _said_already_proven(lock, folder, world):
                _prove(lock, source, folder, world)


def _refuse_names_of_ours(lock: Lock) -> None:
    ours = (RECEIPT_NAME, CLAIM_NAME)
    paths = (file.path for file in lock.files)
    if names := tuple(path for path in paths if path in ours or path.endswith(PART_SUFFIX)):
        raise ConfigurationInvalid(
            "the lock names files that this job writes itself",
            why=names,
            next_step="take them out of the lock: they are not weights",
        )


def _said_already_proven(lock: Lock, folder: Path, world: World) -> bool:
    if any(discrepancies(lock, read_receipt(folder), stat_files(folder, lock))):
        return False
    world.say(f"already proven: {len(lock.files)} files, {lock.total_bytes} bytes")
    return True


def _prove(lock: Lock, source: Source, folder: Path, world: World) -> None:
    older = read_receipt(folder)
    stats = stat_files(folder, lock)
    work = work_for(lock, older, stats)
    for file in work.to_fetch:
        if seen := stats[file.path]:
            found = wrong_size(file, f"{seen.size_bytes}")
            world.say(f"wrong on this disk, will be fetched anew: {found}")
    adopted, wrong = _check_in_place(work.to_check, folder, world)
    fetched, refused = _fetch_all((*work.to_fetch, *wrong), source, folder, world)
    if refused:
        raise VerificationFailed(
            f"{len(refused)} of {len(lock.files)} files are not what the lock asks for",
            why=tuple(str(mismatch) for mismatch in refused),
            next_step="copy these files to the source again from where they were first "
            "downloaded, then run again: the other files are kept",
        )
    proven = (*work.kept, *adopted, *fetched)
    receipt = receipt_for(lock, proven, older, _stats_of_receipt(folder, older))
    content = f"{receipt.model_dump_json(indent=2)}\n".encode()
    write_atomically(folder / RECEIPT_NAME, content)
    world.say(
        f"proven: {len(lock.files)} files, {lock.total_bytes} bytes "
        f"({len(work.kept)} kept, {len(adopted)} checked in place, {len(fetched)} fetched)"
    )


def _check_in_place(
    files: tuple[LockedFile, ...], folder: Path, world: World
) -> tuple[tuple[ProvenFile, ...], tuple[LockedFile, ...]]:
    """Files that already are what the lock asks for, and those that only have the right size."""
    progress = Progress("checking", sum(file.size_bytes for file in files), world)
    right: list[ProvenFile] = []
    wrong: list[LockedFile] = []
    for number, file in enumerate(files, 1):
        world.say(f"checking {number}/{len(files)}: {file.path}, {file.size_bytes} bytes")
        outcome = adopt(file, folder / file.path, progress)
        if isinstance(outcome, Mismatch):
            world.say(f"wrong on this disk, will be fetched anew: {outcome}")
            wrong.append(file)
        else:
            right.append(outcome)
    return tuple(right), tuple(wrong)


def _fetch_all(
    files: tuple[LockedFile, ...], source: Source, folder: Path, world: World
) -> tuple[tuple[ProvenFile, ...], tuple[Mismatch, ...]]:
    """Fetch every file that the source can have right, and name every one that it has not."""
    refused = list(_wrong_sizes(files, source))
    sized = [file for file in files if file.path not in {mismatch.path for mismatch in refused}]
    for mismatch in refused:
        world.say(f"wrong in the source: {mismatch}")
    _make_room(sized, folder)
    progress = Progress("copying", sum(file.size_bytes for file in sized), world)
    proven: list[ProvenFile] = []
    for number, file in enumerate(sized, 1):
        world.say(f"copying {number}/{len(sized)}: {file.path}, {file.size_bytes} bytes")
        started_s = world.monotonic()
        final = folder / file.path
        make_folders(folder, final.parent)
        outcome = fetch(file, source, final, progress)
        if isinstance(outcome, Mismatch):
            world.say(f"wrong in the source: {outcome}")
            refused.append(outcome)
        else:
            world.say(f"proven {file.path} in {duration(world.monotonic() - started_s)}")
            proven.append(outcome)
    return tuple(proven), tuple(refused)


def _wrong_sizes(files: tuple[LockedFile, ...], source: Source) -> Iterator[Mismatch]:
    """Ask the source for all sizes before the first byte: cheap, and one answer names every file."""
    missing: list[str] = []
    for file in files:
        try:
            found_bytes = source.size_bytes(file)
        except OSError as error:
            missing.append(f"{source.where(file)}: {error.strerror}")
            continue
        if found_bytes != file.size_bytes:
            yield wrong_size(file, f"{found_bytes}")
    if missing:
        raise NotDelivered(
            f"{len(missing)} of {len(files)} files can't be had from the source",
            why=tuple(missing),
            next_step="attach the disk or share and put each file at this path below SOURCE_DIR, "
            "then run again",
        )


def _make_room(files: list[LockedFile], folder: Path) -> None:
    for file in files:
        part_of(folder / file.path).unlink(missing_ok=True)
    needed_bytes = sum(file.size_bytes for file in files)
    disk = os.statvfs(folder)
    free_bytes = disk.f_bavail * disk.f_frsize
    if needed_bytes > free_bytes:
        raise NotDelivered(
            f"too little space in the weights folder {folder}",
            why=(f"needed are {needed_bytes} bytes, free are {free_bytes} bytes",),
            next_step=f"free {needed_bytes - free_bytes} bytes there, then run again",
        )


def _stats_of_receipt(folder: Path, receipt: Receipt | None) -> dict[str, FileStat | None]:
    if receipt is None or not receipt.files:
        return {}
    named = tuple(
        LockedFile(path=file.path, size_bytes=file.size_bytes, sha256=file.sha256)
        for file in receipt.files
    )
    return stat_files(folder, Lock(repo=receipt.repo, revision=receipt.revision, files=named))

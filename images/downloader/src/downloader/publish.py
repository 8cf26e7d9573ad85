"""From an order to proven files under their final names, and the receipt last."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from downloader.board import Board, Reporter
from downloader.durable import PART_SUFFIX, make_folders, write_atomically
from downloader.errors import (
    ConfigurationInvalid,
    Failure,
    NotDelivered,
    VerificationFailed,
    writing_to,
)
from downloader.exclusive import CLAIM_NAME, exclusive
from downloader.fetching import Fetched, Place, fetch_all
from downloader.hashing import Mismatch, prove_in_place, wrong_size
from downloader.headers import require_sound_headers
from downloader.lots import Access, groups, open_lot
from downloader.partfile import MAP_SUFFIX
from downloader.stale import find_stale
from downloader.transport import Transport
from downloader.unpacking import forget
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
from wire.order import PROGRESS_NAME, Order, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a run may use besides the order."""

    weights_dir: Path
    source_dir: Path | None = None
    token: str = ""
    ca_bundle: Path | None = None


def publish(order: Order, means: Means, world: World) -> None:
    """Make the lock's files present and proven below the weights folder, or raise a Failure."""
    lock, folder = order.lock, means.weights_dir / order.lock.folder
    refuse_names_of_ours(lock)
    if _said_already_proven(lock, folder, world):
        return
    with claimed(lock, means.weights_dir, world):
        if not _said_already_proven(lock, folder, world):
            prove(order, means, world)


@contextmanager
def claimed(lock: Lock, weights_dir: Path, world: World) -> Iterator[None]:
    """The revision's folder, made where it is missing, for this run alone."""
    with writing_to(weights_dir):
        if not weights_dir.is_dir():
            raise ConfigurationInvalid(
                f"WEIGHTS_DIR {weights_dir} is not a folder",
                why=("the job makes folders only below it, so as not to fill the wrong disk",),
                next_step="mount the weights folder there, then run again",
            )
        make_folders(weights_dir, weights_dir / lock.folder)
        with exclusive(weights_dir / lock.folder, world):
            yield


def refuse_names_of_ours(lock: Lock) -> None:
    ours = (RECEIPT_NAME, CLAIM_NAME, PROGRESS_NAME, f"{PROGRESS_NAME}.new")
    endings = (PART_SUFFIX, f"{PART_SUFFIX}{MAP_SUFFIX}")
    paths = (file.path for file in lock.files)
    if names := tuple(path for path in paths if path in ours or path.endswith(endings)):
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


def prove(order: Order, means: Means, world: World) -> None:
    """The caller holds the claim on the folder."""
    folder = means.weights_dir / order.lock.folder
    board = Board(order.lock.files, world)
    place = Place(
        order=order, folder=folder, weights_dir=means.weights_dir, board=board, world=world
    )
    with Reporter(board, folder, world):
        try:
            _say_stale(order.lock, means.weights_dir, world)
            _prove(place, means)
        except Failure as failure:
            board.enter(Phase.FAILED, "; ".join((failure.what, *failure.why)))
            raise
        except OSError as error:
            board.enter(Phase.FAILED, str(error))
            raise
        board.enter(Phase.DONE)


def _say_stale(lock: Lock, weights_dir: Path, world: World) -> None:
    for stale in find_stale(weights_dir, lock):
        world.say(
            f"left by another order, not touched: {stale}; `python3 -m downloader clean` removes it"
        )


def _prove(place: Place, means: Means) -> None:
    lock, folder, world = place.order.lock, place.folder, place.world
    older = read_receipt(folder)
    stats = stat_files(folder, lock)
    work = work_for(lock, older, stats)
    kept = {proof.path for proof in work.kept}
    for file in lock.files:
        if file.path in kept:
            place.board.verified(file)
    for file in work.to_fetch:
        if seen := stats[file.path]:
            found = wrong_size(file, f"{seen.size_bytes}")
            world.say(f"wrong on this disk, will be fetched anew: {found}")
    adopted, wrong = _check_in_place(work.to_check, place)
    wanted = {file.path for file in (*work.to_fetch, *wrong)}
    fetched = _fetch(tuple(file for file in lock.files if file.path in wanted), place, means)
    proven = (*work.kept, *adopted, *fetched)
    place.board.enter(Phase.VERIFYING)
    for file in lock.files:
        forget(folder / file.path)
    require_sound_headers(lock, folder)
    write_receipt(lock, proven, older, folder)
    world.say(
        f"proven: {len(lock.files)} files, {lock.total_bytes} bytes "
        f"({len(work.kept)} kept, {len(adopted)} checked in place, {len(fetched)} fetched)"
    )


def write_receipt(
    lock: Lock, proven: tuple[ProvenFile, ...], older: Receipt | None, folder: Path
) -> None:
    receipt = receipt_for(lock, proven, older, _stats_of_receipt(folder, older))
    content = f"{receipt.model_dump_json(indent=2)}\n".encode()
    write_atomically(folder / RECEIPT_NAME, content)


def _check_in_place(
    files: tuple[LockedFile, ...], place: Place
) -> tuple[tuple[ProvenFile, ...], tuple[LockedFile, ...]]:
    """Files that already are what the lock asks for, and those that only have the right size."""
    right: list[ProvenFile] = []
    wrong: list[LockedFile] = []
    for number, file in enumerate(files, 1):
        place.world.say(f"checking {number}/{len(files)}: {file.path}, {file.size_bytes} bytes")
        outcome = check_in_place(file, place)
        if isinstance(outcome, Mismatch):
            place.world.say(f"wrong on this disk, will be fetched anew: {outcome}")
            wrong.append(file)
        else:
            right.append(outcome)
    return tuple(right), tuple(wrong)


def check_in_place(file: LockedFile, place: Place) -> ProvenFile | Mismatch:
    def on_bytes(count: int) -> None:
        place.world.beat()
        place.board.moved(file.path, count)

    outcome = prove_in_place(file, place.folder / file.path, on_bytes)
    if isinstance(outcome, Mismatch):
        place.board.here(file.path, 0)
    else:
        place.board.verified(file)
    return outcome


def _fetch(files: tuple[LockedFile, ...], place: Place, means: Means) -> tuple[ProvenFile, ...]:
    """From one lot of sources after the other, until every file is proven."""
    proven: list[ProvenFile] = []
    failures: list[Failure] = []
    refused: list[Mismatch] = []
    for group in groups(place.order):
        done = {proof.path for proof in proven}
        left = tuple(file for file in files if file.path not in done)
        if not left:
            break
        tuning = place.order.tuning
        transport = Transport(
            proxies={str(scheme): url for scheme, url in place.order.proxies.items()},
            ca_bundle=means.ca_bundle,
            streams=tuning.streams,
            connect_timeout_s=tuning.connect_timeout_s,
            idle_timeout_s=tuning.idle_timeout_s,
        )
        access = Access(source_dir=means.source_dir, token=means.token, transport=transport)
        with closing(transport):
            try:
                lot = open_lot(group, place.order, access, place.world)
                fetched = fetch_all(left, lot, transport, place)
            except NotDelivered as failure:
                fetched = Fetched(undelivered=failure)
        proven.extend(fetched.proven)
        refused = fetched.refused
        if fetched.undelivered is not None:
            failures.append(fetched.undelivered)
            place.world.say(fetched.undelivered.what)
        elif not refused:
            break
    _raise_what_is_left(place.order.lock, files, proven, refused, failures)
    return tuple(proven)


def _raise_what_is_left(
    lock: Lock,
    files: tuple[LockedFile, ...],
    proven: list[ProvenFile],
    refused: list[Mismatch],
    failures: list[Failure],
) -> None:
    if len(proven) == len(files):
        return
    if refused and not failures:
        raise VerificationFailed(
            f"{len(refused)} of {len(lock.files)} files are not what the lock asks for",
            why=tuple(str(mismatch) for mismatch in refused),
            next_step="use a source that has these files as they were when the lock was made, "
            "then run again: the other files are kept",
        )
    raise NotDelivered(
        failures[-1].what,
        why=(
            *(reason for failure in failures for reason in failure.why),
            *(str(mismatch) for mismatch in refused),
        ),
        next_step=failures[-1].next_step,
    )


def _stats_of_receipt(folder: Path, receipt: Receipt | None) -> dict[str, FileStat | None]:
    if receipt is None or not receipt.files:
        return {}
    named = tuple(
        LockedFile(path=file.path, size_bytes=file.size_bytes, sha256=file.sha256)
        for file in receipt.files
    )
    return stat_files(folder, Lock(repo=receipt.repo, revision=receipt.revision, files=named))

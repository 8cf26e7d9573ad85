"""`verify`: is what the receipt vouches for still there? By a look, or by hashing every byte; and repair."""

from downloader.board import Board, Reporter
from downloader.errors import VerificationFailed
from downloader.fetching import Place
from downloader.hashing import Mismatch, wrong_size
from downloader.headers import require_sound_headers
from downloader.partfile import make_part_of
from downloader.partmap import Content
from downloader.publish import (
    Means,
    check_in_place,
    claimed,
    prove,
    refuse_names_of_ours,
    write_receipt,
)
from downloader.world import World
from wire import LockedFile, ProvenFile, Receipt, discrepancies, read_receipt, stat_files
from wire.order import Order, Phase

NEXT_STEP = "run `verify --repair`, which fetches only what differs"


def verify_quick(order: Order, means: Means, world: World) -> None:
    """Receipt, sizes, times and inodes; no weight is read."""
    lock, folder = order.lock, means.weights_dir / order.lock.folder
    found = tuple(
        str(each) for each in discrepancies(lock, read_receipt(folder), stat_files(folder, lock))
    )
    if found:
        raise VerificationFailed(
            f"{folder} is not proven", why=found, next_step="run `verify --full`, which reads all"
        )
    world.say(f"as proven: {len(lock.files)} files, {lock.total_bytes} bytes (by size and time)")


def verify_full(order: Order, means: Means, world: World, *, repair: bool) -> None:
    """Every byte is hashed. A wrong file loses its place in the receipt, so that nothing runs on it."""
    lock, folder = order.lock, means.weights_dir / order.lock.folder
    refuse_names_of_ours(lock)
    with claimed(lock, means.weights_dir, world):
        board = Board(lock.files, world)
        place = Place(
            order=order, folder=folder, weights_dir=means.weights_dir, board=board, world=world
        )
        with Reporter(board, folder, world):
            right, wrong = _hash_all(place)
            board.enter(Phase.FAILED if wrong else Phase.DONE, "; ".join(map(str, wrong)))
        if not wrong:
            require_sound_headers(lock, folder)
        write_receipt(lock, right, _without(wrong, place), folder)
        if wrong and repair:
            _keep_bytes_as_parts(wrong, place)
            prove(order, means, world)
        elif wrong:
            raise VerificationFailed(
                f"{len(wrong)} of {len(lock.files)} files are not what the lock asks for",
                why=tuple(str(mismatch) for mismatch in wrong),
                next_step=NEXT_STEP,
            )
        else:
            world.say(f"proven: {len(lock.files)} files, {lock.total_bytes} bytes (every byte)")


def _hash_all(place: Place) -> tuple[tuple[ProvenFile, ...], tuple[Mismatch, ...]]:
    right: list[ProvenFile] = []
    wrong: list[Mismatch] = []
    for file in place.order.lock.files:
        outcome = _hash(file, place)
        if isinstance(outcome, Mismatch):
            place.world.say(f"wrong on this disk: {outcome}")
            wrong.append(outcome)
        else:
            right.append(outcome)
    return tuple(right), tuple(wrong)


def _hash(file: LockedFile, place: Place) -> ProvenFile | Mismatch:
    try:
        size_bytes = (place.folder / file.path).stat().st_size
    except FileNotFoundError:
        return Mismatch(file.path, "the file is missing")
    if size_bytes != file.size_bytes:
        return wrong_size(file, f"{size_bytes}")
    return check_in_place(file, place)


def _without(wrong: tuple[Mismatch, ...], place: Place) -> Receipt | None:
    """The receipt as it was, less what is known to be wrong: other locks' files keep their proof."""
    older = read_receipt(place.folder)
    if older is None:
        return None
    paths = {mismatch.path for mismatch in wrong}
    files = tuple(file for file in older.files if file.path not in paths)
    return older.model_copy(update={"files": files})


def _keep_bytes_as_parts(wrong: tuple[Mismatch, ...], place: Place) -> None:
    """Most bytes of a wrong file of the right size are right: only what differs is to be written."""
    tuning, folder = place.order.tuning, place.folder
    paths = {mismatch.path for mismatch in wrong}
    for file in place.order.lock.files:
        final = folder / file.path
        if file.path not in paths or not final.is_file() or final.is_symlink():
            continue
        if final.stat().st_size == file.size_bytes:
            make_part_of(
                final,
                Content(
                    size_bytes=file.size_bytes,
                    sha256=file.sha256,
                    revision=place.order.lock.revision,
                    part_bytes=tuning.part_bytes,
                ),
            )

"""Every file of one lot of sources: streams fetch, hashers follow, this thread watches over both."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from downloader.board import Board
from downloader.delivery import Deliveries, Delivery, verdict_of
from downloader.durable import make_folders
from downloader.errors import NotDelivered
from downloader.halt import Halt
from downloader.hashing import Mismatch
from downloader.lots import Lot
from downloader.pace import RateLimit
from downloader.partfile import PartFile, bytes_on_disk
from downloader.partmap import Content
from downloader.refusals import cannot_be_had, nobody_answers
from downloader.rotation import Rotation
from downloader.sources.base import Fault
from downloader.space import Room, require_room
from downloader.streams import Streams
from downloader.transfer import NobodyAnswers, Part, Surroundings
from downloader.transport import Transport
from downloader.world import World
from wire import LockedFile, ProvenFile
from wire.order import Order, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where it happens, and who is told."""

    order: Order
    folder: Path
    weights_dir: Path
    board: Board
    world: World


@dataclass(slots=True)
class Fetched:
    """`undelivered`: why the files in neither of the others did not come."""

    proven: list[ProvenFile] = field(default_factory=list)
    refused: list[Mismatch] = field(default_factory=list)
    undelivered: NotDelivered | None = None


def fetch_all(
    files: tuple[LockedFile, ...], lot: Lot, transport: Transport, place: Place
) -> Fetched:
    """Fetch every file that a source has right; those that none has are told apart."""
    tuning, world = place.order.tuning, place.world
    rotation = Rotation(len(lot.sources), tuning.switch_after_s, world.monotonic())
    fetched = Fetched()
    wanted = _looked_at(files, lot, rotation, fetched, world)
    if fetched.undelivered is not None:
        return fetched
    contents = {file.path: _content(file, lot, place.order) for file in wanted}
    _require_room(wanted, contents, lot, place)
    place.board.enter(Phase.FETCHING)
    halt = Halt()
    with _opened(wanted, contents, lot, place) as deliveries:
        around = Surroundings(
            sources=lot.sources,
            tuning=tuning,
            limit=RateLimit(tuning.limit_rate),
            board=place.board,
            room=_room(deliveries, place, halt),
            halt=halt,
            world=world,
        )
        try:
            _run(deliveries, rotation, around, transport)
        except NobodyAnswers as silence:
            fetched.undelivered = nobody_answers(silence.words, lot.sources, tuning)
    _collect(deliveries, lot, fetched)
    return fetched


def _looked_at(
    files: tuple[LockedFile, ...],
    lot: Lot,
    rotation: Rotation,
    fetched: Fetched,
    world: World,
) -> tuple[LockedFile, ...]:
    """Ask all that can be asked for nothing before the first byte: one answer names every file."""
    hopeless: list[tuple[LockedFile, dict[int, Fault]]] = []
    for file in files:
        for index, source in enumerate(lot.sources):
            if fault := source.look(file):
                rotation.leave_out(file.path, index, fault)
        if rotation.pick(file.path) is not None:
            continue
        verdicts = rotation.verdicts(file.path)
        if mismatch := verdict_of(file, verdicts):
            world.say(f"wrong in the source: {mismatch}")
            fetched.refused.append(mismatch)
        else:
            hopeless.append((file, verdicts))
    if hopeless:
        fetched.undelivered = cannot_be_had(hopeless, lot.sources, len(files))
    refused = {mismatch.path for mismatch in fetched.refused}
    return tuple(file for file in files if file.path not in refused)


def _content(file: LockedFile, lot: Lot, order: Order) -> Content:
    size_bytes = file.size_bytes if lot.deflated_bytes is None else lot.deflated_bytes
    return Content(
        size_bytes=size_bytes,
        sha256=file.sha256,
        revision=order.lock.revision,
        part_bytes=order.tuning.part_bytes,
    )


def _require_room(
    files: tuple[LockedFile, ...], contents: Mapping[str, Content], lot: Lot, place: Place
) -> None:
    needed_bytes = 0
    for file in files:
        content = contents[file.path]
        needed_bytes += content.size_bytes - bytes_on_disk(place.folder / file.path, content)
        if lot.deflated_bytes is not None:
            needed_bytes += file.size_bytes
    spare_bytes = place.order.tuning.spare_bytes
    require_room(needed_bytes, spare_bytes, place.folder, place.weights_dir)


def _room(deliveries: tuple[Delivery, ...], place: Place, halt: Halt) -> Room:
    tuning = place.order.tuning

    def enough_bytes() -> int:
        missing = sum(
            each.parts.content.size_bytes - each.parts.finished_bytes for each in deliveries
        )
        return min(missing, tuning.streams * tuning.part_bytes) + tuning.spare_bytes

    return Room(place.folder, enough_bytes, place.board, halt)


@contextmanager
def _opened(
    files: tuple[LockedFile, ...], contents: Mapping[str, Content], lot: Lot, place: Place
) -> Iterator[tuple[Delivery, ...]]:
    deliveries: list[Delivery] = []
    for file in files:
        final = place.folder / file.path
        make_folders(place.folder, final.parent)
        parts = PartFile(final, contents[file.path])
        deliveries.append(Delivery(file, parts, deflated=lot.deflated_bytes is not None))
        here = parts.finished_bytes
        place.board.here(file.path, here)
        if here:
            place.world.say(
                f"resuming {file.path}: {here} of {parts.content.size_bytes} bytes are here"
            )
    yield tuple(deliveries)


def _run(
    deliveries: tuple[Delivery, ...],
    rotation: Rotation,
    around: Surroundings,
    transport: Transport,
) -> None:
    by_path = {each.file.path: each for each in deliveries}

    def give_up(part: Part) -> None:
        delivery = by_path[part.file.path]
        delivery.given_up = part.rotation.verdicts(part.file.path)
        if _is_missing(delivery):
            # Hours of other parts would not help. The first ones still tell what else is missing.
            streams.drop_waiting()

    streams = Streams(around, give_up)
    hashers = Deliveries(deliveries, streams, around)
    # The first part of every file comes first: a file that no source has is known at once.
    for each in deliveries:
        parts = [
            Part(file=each.file, parts=each.parts, index=index, rotation=rotation)
            for index in each.parts.missing
        ]
        streams.put((part for part in parts if part.index == 0), urgent=True)
        streams.put(part for part in parts if part.index != 0)
    try:
        streams.start()
        hashers.start()
        _watch(hashers, streams, around)
    finally:
        around.halt.now()
        transport.cut_all()
        if streams.stop() and hashers.stop():
            for each in deliveries:
                each.parts.close()


def _watch(hashers: Deliveries, streams: Streams, around: Surroundings) -> None:
    """Until every file is decided, or none of the rest can be. Raises what halted a thread."""
    while not hashers.decided:
        if around.halt.asked():
            raise around.halt.reason or AssertionError
        if streams.idle and not hashers.decided:
            if any(_is_missing(each) for each in hashers.all):
                return
            if around.board.phase is Phase.FETCHING:
                around.board.enter(Phase.VERIFYING)
        hashers.wait()


def _is_missing(delivery: Delivery) -> bool:
    return delivery.given_up is not None and verdict_of(delivery.file, delivery.given_up) is None


def _collect(deliveries: tuple[Delivery, ...], lot: Lot, fetched: Fetched) -> None:
    hopeless: list[tuple[LockedFile, dict[int, Fault]]] = []
    for each in deliveries:
        match each.outcome:
            case ProvenFile():
                fetched.proven.append(each.outcome)
            case Mismatch():
                fetched.refused.append(each.outcome)
            case None if each.given_up is not None:
                if mismatch := verdict_of(each.file, each.given_up):
                    fetched.refused.append(mismatch)
                else:
                    hopeless.append((each.file, each.given_up))
            case None:
                pass
    if hopeless:
        fetched.undelivered = cannot_be_had(hopeless, lot.sources, len(deliveries))

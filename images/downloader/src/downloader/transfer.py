"""One part of one file: asked for until it is here, from the byte where the last try stopped."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from downloader.board import Board
from downloader.halt import Halt
from downloader.pace import RateFloor, RateLimit, backoff_s, floor_for
from downloader.partfile import PartFile
from downloader.rotation import Exhausted, Rotation
from downloader.sources.base import Fault, Kind, Source
from downloader.space import Room, is_full
from downloader.world import World
from wire import LockedFile
from wire.order import Tuning

CHUNK_BYTES = 256 * 1024


class Hopeless(Exception):
    """No source can have this file right."""


class NobodyAnswers(Exception):
    """Every source had its turn without a byte."""

    def __init__(self, words: dict[int, Fault]) -> None:
        super().__init__()
        self.words = words


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """`compare`: the bytes are here but wrong somewhere; what differs is replaced and noted there."""

    file: LockedFile
    parts: PartFile
    index: int
    rotation: Rotation
    compare: set[int] | None = None
    done: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all streams of a run share."""

    sources: Sequence[Source]
    tuning: Tuning
    limit: RateLimit
    board: Board
    room: Room
    halt: Halt
    world: World


@dataclass(slots=True)
class Stream:
    """One thread's own buffers."""

    around: Surroundings
    _buffer: memoryview = field(init=False)
    _other: memoryview = field(init=False)

    def __post_init__(self) -> None:
        limit = self.around.tuning.limit_rate
        # Under a limit a chunk is a fraction of a second's worth, so that the flow is even.
        wanted = CHUNK_BYTES if limit is None else limit // (4 * self.around.tuning.streams)
        size = min(CHUNK_BYTES, max(wanted, 1024))
        self._buffer, self._other = memoryview(bytearray(size)), memoryview(bytearray(size))

    def transfer(self, part: Part) -> None:
        """Raises Halted, Hopeless, NobodyAnswers, and OSError of the disk."""
        while True:
            try:
                self._fetch(part)
                part.parts.finish(part.index)
            except OSError as error:
                if not is_full(error):
                    raise
                # Bytes that a full disk took may not be there: the part begins anew.
                self.around.room.wait(error)
            else:
                part.rotation.went_well(self.around.world.monotonic())
                return

    def _fetch(self, part: Part) -> None:
        start, stop = part.parts.content.span(part.index)
        at, failures, slow = start, 0, 0
        try:
            while at < stop:
                self.around.halt.check()
                chosen = part.rotation.pick(part.file.path)
                if chosen is None:
                    raise Hopeless
                before = at
                try:
                    for count in self._chunks(part, chosen, at, stop, slow):
                        at += count
                except _TooSlow as fault:
                    slow, failures = slow + 1, 0
                    self._after(part, chosen, fault, failures)
                except Fault as fault:
                    slow, failures = 0, 1 if at > before else failures + 1
                    self._after(part, chosen, fault, failures)
        except OSError:
            self._uncount(part, at - start)
            raise

    def _chunks(self, part: Part, chosen: int, at: int, stop: int, slow: int) -> Iterator[int]:
        around, tuning = self.around, self.around.tuning
        source = around.sources[chosen]
        now_s = around.world.monotonic
        lowest = floor_for(tuning.min_rate, tuning.limit_rate, tuning.streams)
        floor = RateFloor(lowest, tuning.min_rate_window_s, now_s(), slow)
        with source.open(part.file, at, stop) as reader:
            around.board.from_source(source.name)
            while at < stop:
                count = reader.readinto(self._buffer[: stop - at])
                # A run that has ended may already have a successor at the same file.
                around.halt.check()
                self._store(part, at, self._buffer[:count])
                at += count
                yield count
                part.rotation.bytes_came(now_s())
                self._watch(part, floor.add(count, now_s()), floor, source)
                if (wait_s := around.limit.wait_s(count, now_s())) > 0:
                    around.halt.wait(wait_s)

    def _watch(self, part: Part, went_well: bool | None, floor: RateFloor, source: Source) -> None:  # noqa: FBT001
        if went_well:
            part.rotation.went_well(self.around.world.monotonic())
        elif went_well is False:
            raise _TooSlow(
                Kind.LATER, f"{source.name}: slower than {floor.floor / 1e3:.1f} kB/s, asking anew"
            )

    def _store(self, part: Part, at: int, chunk: memoryview) -> None:
        if part.compare is not None:
            there = self._other[: len(chunk)]
            if part.parts.read(there, at) == len(chunk) and there == chunk:
                return
            part.compare.add(part.index)
        else:
            self.around.board.moved(part.file.path, len(chunk))
        part.parts.write(chunk, at)

    def _uncount(self, part: Part, count: int) -> None:
        if part.compare is None:
            self.around.board.moved(part.file.path, -count)

    def _after(self, part: Part, chosen: int, fault: Fault, failures: int) -> None:
        """Decide what one fault means for the rotation, say it, and wait as long as it asks for."""
        around = self.around
        around.halt.check()
        try:
            part.rotation.faulted(part.file.path, chosen, fault, around.world.monotonic())
        except Exhausted:
            raise NobodyAnswers(dict(part.rotation.words)) from fault
        around.board.trouble(f"{around.sources[chosen].where(part.file)}: {fault.why}")
        if part.rotation.pick(part.file.path) != chosen:
            return
        if failures:
            wait_s = backoff_s(failures, around.tuning.backoff_cap_s, around.world.random())
            around.halt.wait(max(wait_s, fault.retry_after_s or 0.0))


class _TooSlow(Fault):
    pass

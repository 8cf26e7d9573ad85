"""One file from its parts to its final name: hashed behind the streams, repaired once, published."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from downloader.hashing import Mismatch, proven, wrong_hash
from downloader.partfile import PartFile
from downloader.rotation import Rotation
from downloader.sources.base import Fault, Kind
from downloader.streams import Streams
from downloader.transfer import Part, Surroundings
from downloader.unpacking import Arrived, deflated, forget, plain
from wire import LockedFile, ProvenFile
from wire.order import Phase

HASHERS = 2


@dataclass(slots=True, eq=False)
class Delivery:
    """`outcome`: None until it is decided. `given_up`: why no source can have it right."""

    file: LockedFile
    parts: PartFile
    deflated: bool
    outcome: ProvenFile | Mismatch | None = None
    given_up: dict[int, Fault] | None = None
    differing: set[int] = field(default_factory=set)

    def is_given_up(self) -> bool:
        return self.given_up is not None

    @property
    def is_decided(self) -> bool:
        return self.outcome is not None or self.given_up is not None


class Deliveries:
    """At most two files are hashed at once, in the order in which they arrive."""

    def __init__(
        self, deliveries: tuple[Delivery, ...], streams: Streams, around: Surroundings
    ) -> None:
        self.all = deliveries
        self.changed = threading.Condition()
        self._around = around
        self._streams = streams
        self._next: Iterator[Delivery] = iter(deliveries)
        self._threads = [
            threading.Thread(target=self._work, name=f"hasher-{number}", daemon=True)
            for number in range(min(HASHERS, len(deliveries)))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, within_s: float = 0.5) -> bool:
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(within_s)
        return not any(thread.is_alive() for thread in self._threads)

    def wait(self) -> None:
        """Until something was decided, or a moment is over."""
        with self.changed:
            self.changed.wait(0.2)

    @property
    def decided(self) -> bool:
        return all(each.is_decided for each in self.all)

    def _work(self) -> None:
        try:
            while (delivery := self._take()) is not None:
                self._deliver(delivery)
                with self.changed:
                    self.changed.notify_all()
        except BaseException as error:  # noqa: BLE001 -- the main thread raises it
            self._around.halt.now(error)

    def _take(self) -> Delivery | None:
        with self.changed:
            return next(self._next, None)

    def _deliver(self, delivery: Delivery) -> None:
        arrived = self._hash(delivery)
        if delivery.is_given_up():
            return
        if arrived.digest != delivery.file.sha256 and delivery.parts.content.count:
            self._repair(delivery, arrived.digest)
            if delivery.is_given_up():
                return
            arrived = self._hash(delivery)
        if arrived.digest == delivery.file.sha256:
            delivery.outcome = proven(delivery.file, arrived.publish())
            self._around.board.verified(delivery.file)
            self._around.world.say(f"proven {delivery.file.path}")
            return
        self._refuse(delivery, arrived)

    def _hash(self, delivery: Delivery) -> Arrived:
        around = self._around
        if delivery.deflated:
            return deflated(
                delivery.file, delivery.parts, around.room, around.halt, delivery.is_given_up
            )
        return plain(delivery.parts, around.halt, delivery.is_given_up)

    def _repair(self, delivery: Delivery, found: str) -> None:
        """Fetch every part again, from the next source where there is one, and replace what differs."""
        around, content = self._around, delivery.parts.content
        around.world.say(
            f"wrong: {wrong_hash(delivery.file, found)}; fetching its {content.count} parts again "
            "to find the wrong ones"
        )
        before = around.board.phase
        around.board.enter(Phase.REPAIRING, f"{delivery.file.path} is not what the lock asks for")
        rotation = Rotation(
            len(around.sources),
            around.tuning.switch_after_s,
            around.world.monotonic(),
            first=1 if len(around.sources) > 1 else 0,
        )
        left = _Countdown(content.count)
        self._streams.put(
            (
                Part(
                    file=delivery.file,
                    parts=delivery.parts,
                    index=index,
                    rotation=rotation,
                    compare=delivery.differing,
                    done=left.one_less,
                )
                for index in range(content.count)
            ),
            urgent=True,
        )
        left.wait(around.halt.check)
        around.board.enter(before)
        around.world.say(
            f"{delivery.file.path}: {len(delivery.differing)} of {content.count} parts differed "
            "and were replaced"
        )

    def _refuse(self, delivery: Delivery, arrived: Arrived) -> None:
        count = delivery.parts.content.count
        again = (
            f"; fetched again, {len(delivery.differing)} of its {count} parts differed"
            if count
            else ""
        )
        delivery.outcome = wrong_hash(delivery.file, arrived.digest, again)
        self._around.world.say(f"wrong in the source: {delivery.outcome}")
        # Its bytes are proven wrong: they are not worth their space.
        delivery.parts.discard()
        forget(delivery.parts.final)


def verdict_of(file: LockedFile, faults: dict[int, Fault]) -> Mismatch | None:
    """A file that every source has, but a different one, is as wrong as one with a wrong hash."""
    if any(fault.kind is not Kind.DIFFERENT for fault in faults.values()):
        return None
    return Mismatch(file.path, "; ".join(dict.fromkeys(fault.why for fault in faults.values())))


class _Countdown:
    def __init__(self, count: int) -> None:
        self._left = count
        self._changed = threading.Condition()

    def one_less(self) -> None:
        with self._changed:
            self._left -= 1
            self._changed.notify_all()

    def wait(self, check: Callable[[], None]) -> None:
        with self._changed:
            while self._left > 0:
                check()
                self._changed.wait(0.2)

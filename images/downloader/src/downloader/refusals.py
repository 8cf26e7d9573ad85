"""The words for an order that can't be carried out now: which files, what each source said, what to do."""

from collections.abc import Iterable, Mapping, Sequence

from downloader.errors import NotDelivered
from downloader.progress import duration
from downloader.sources.base import Fault, Source
from wire import LockedFile
from wire.order import Tuning

KEPT = "what has arrived is kept"


def cannot_be_had(
    hopeless: Sequence[tuple[LockedFile, Mapping[int, Fault]]],
    sources: Sequence[Source],
    count: int,
) -> NotDelivered:
    where = "the source" if len(sources) == 1 else "any source"
    return NotDelivered(
        f"{len(hopeless)} of {count} files can't be had from {where}",
        why=tuple(
            f"{sources[index].where(file)}: {fault.why}"
            for file, faults in hopeless
            for index, fault in sorted(faults.items())
        ),
        next_step=_next_step(fault for _, faults in hopeless for fault in faults.values())
        or f"add a source that has these files, then run again: {KEPT}",
    )


def nobody_answers(
    words: Mapping[int, Fault], sources: Sequence[Source], tuning: Tuning
) -> NotDelivered:
    return NotDelivered(
        f"no byte came from {len(sources)} of {len(sources)} sources, each had its turn of "
        f"{duration(tuning.switch_after_s)}",
        why=tuple(f"{sources[index].name}: {fault.why}" for index, fault in sorted(words.items())),
        next_step=_next_step(words.values())
        or f"check the network, a proxy and the sources, then run again: {KEPT}",
    )


def _next_step(faults: Iterable[Fault]) -> str:
    return "; or ".join(dict.fromkeys(fault.next_step for fault in faults if fault.next_step))

"""What ails NVIDIA's cards: of what `nvidia-smi` says when it can't list one, and of the kernel's log."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.core.facts import Gpu
from orchestrator.core.probes.text import lines

ADDRESS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d"
# Drivers write "GPU 0000:0B", "GPU0000:0B" or, with the card's index before, "GPU0: 0000:0B".
UNREACHABLE = re.compile(
    rf"Unable to determine the device handle for gpu\s?(?:\d+: )?({ADDRESS}): (.+)", re.IGNORECASE
)
# A row of the table whose card no longer answers: | 0  ERR!  ERR! | 00000000:0B:00.0 ERR! | ERR! |
MUTE = re.compile(rf"\|\s+\d+\s+.*ERR!.*\|\s*({ADDRESS})\s.*", re.ASCII)
MISMATCH = "Driver/library version mismatch"
NOT_LOADED = "couldn't communicate with the NVIDIA driver"
RESET = "requires reset"
# NVRM: Xid (PCI:0000:0a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\): (\d+),")
KNOWN_AS = re.compile(r"GPU UUID:\s*(GPU-[0-9a-f-]+)\s*$", re.MULTILINE)

OFF_THE_BUS = "fell off the bus"
REBOOT = "reboot this host; if it happens again, look at the card's seat, power and cooling"
REPLACE = "if it happens again, the card is to be replaced (nvidia-smi -q -d ECC,ROW_REMAPPER)"
# docs.nvidia.com/deploy/xid-errors: those that are the card's own. Others are of programs.
_XIDS: Mapping[int, tuple[str, str]] = {
    48: ("had a memory error that it could not correct", REPLACE),
    79: (OFF_THE_BUS, REBOOT),
    94: ("had a memory error that it could not correct", REPLACE),
    95: ("had a memory error that it could not contain", REBOOT),
    119: ("has a system processor that does not answer", REBOOT),
    120: ("has a system processor that failed", REBOOT),
}
# What a card that answers again is known to have recovered from.
_GONE = frozenset({79, 95, 119, 120})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ailment:
    """`card`: its UUID where the driver still tells it, else its address or index; "" the driver itself.

    `fatal`: nothing runs on it before somebody has done what `do` says.
    """

    card: str
    what: str
    do: str
    fatal: bool

    @property
    def words(self) -> str:
        subject = f"the card {self.card}" if self.card else "NVIDIA's driver"
        return f"{subject} {self.what}: {self.do}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """`gpus`: those that the driver lists; None where it lists none and does not say so."""

    gpus: tuple[Gpu, ...] | None
    ailments: tuple[Ailment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was read. `smi`: all that nvidia-smi printed, also where it failed. `kernel_log`: or "".

    `uuids`: card's address as the kernel writes it -> its UUID. `gpus`: that the driver lists; None:
    it lists none and does not say that there is none. `addresses`: of these, by index.
    `on_the_bus`: NVIDIA's cards by the kernel. `expected`: indices that the engine was given.
    """

    smi: str
    kernel_log: str
    uuids: Mapping[str, str]
    gpus: tuple[Gpu, ...] | None
    addresses: Mapping[int, str]
    on_the_bus: int
    expected: Sequence[int]


def lost_cards(smi: str) -> dict[str, str]:
    """Address, as the kernel writes it -> why the driver can't reach the card."""
    found: dict[str, str] = {}
    for line in lines(smi):
        if unreachable := UNREACHABLE.search(line):
            found[bus_address(unreachable[1])] = unreachable[2].strip()
        elif mute := MUTE.fullmatch(line):
            found.setdefault(bus_address(mute[1]), "ERR!")
    return found


def bus_address(text: str) -> str:
    """0000:0b:00.0 for 00000000:0B:00.0."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def uuid_in(information: str) -> str | None:
    """Of /proc/driver/nvidia/gpus/ADDRESS/information, which outlives the card."""
    found = KNOWN_AS.search(information)
    return found[1] if found else None


def ailments(seen: Seen) -> tuple[Ailment, ...]:
    """The fatal ones first; each card's own only once."""
    found = {
        (ailment.card, ailment.what): ailment
        for ailment in (*_of_driver(seen), *_of_cards(seen), *_missing(seen), *_worn(seen))
    }
    return tuple(sorted(found.values(), key=lambda ailment: not ailment.fatal))


def _of_driver(seen: Seen) -> Iterator[Ailment]:
    if MISMATCH in seen.smi:
        what = "was updated, and the kernel still runs the one before"
        yield Ailment(card="", what=what, do="reboot this host", fatal=True)
    elif NOT_LOADED in seen.smi:
        do = "modprobe nvidia, and see why it was not: dmesg | grep -i nvrm"
        yield Ailment(card="", what="is not loaded", do=do, fatal=True)


def _of_cards(seen: Seen) -> Iterator[Ailment]:
    lost = lost_cards(seen.smi)
    for address, why in lost.items():
        name = seen.uuids.get(address, address)
        if RESET in why:
            do = f"stop what uses it, then: nvidia-smi --gpu-reset -i {address}"
            yield Ailment(card=name, what="needs a reset", do=do, fatal=True)
        else:
            yield Ailment(card=name, what=OFF_THE_BUS, do=REBOOT, fatal=True)
    answering = frozenset(seen.addresses.values()) - lost.keys()
    for line in lines(seen.kernel_log):
        if (xid := XID.search(line)) is None or int(xid[2]) not in _XIDS:
            continue
        number, address = int(xid[2]), bus_address(f"{xid[1]}.0")
        gone = number in _GONE
        if gone and address in answering:
            continue
        what, do = _XIDS[number]
        told = what if number == 79 else f"{what} (Xid {number})"  # noqa: PLR2004 - NVIDIA's number
        yield Ailment(card=seen.uuids.get(address, address), what=told, do=do, fatal=gone)


def _missing(seen: Seen) -> Iterator[Ailment]:
    """Where the driver lists cards, and not those that the engine was given."""
    if seen.gpus is None or lost_cards(seen.smi):
        return
    if not seen.gpus and seen.on_the_bus:
        what = f"finds no card, and {seen.on_the_bus} are on the bus"
        do = "dmesg | grep -i nvrm says why; then reboot this host"
        yield Ailment(card="", what=what, do=do, fatal=True)
        return
    there = {gpu.index for gpu in seen.gpus}
    for index in sorted(set(seen.expected) - there):
        yield Ailment(card=str(index), what="is not there any more", do=REBOOT, fatal=True)


def _worn(seen: Seen) -> Iterator[Ailment]:
    for gpu in seen.gpus or ():
        address = seen.addresses.get(gpu.index, str(gpu.index))
        name = seen.uuids.get(address, address)
        if gpu.ecc_errors:
            what = f"had {gpu.ecc_errors} memory errors that it could not correct, since its driver"
            yield Ailment(card=name, what=f"{what} was loaded", do=REPLACE, fatal=False)
        if gpu.persistence is False and gpu.index in seen.expected:
            what = "loses its driver's state whenever nothing uses it (persistence mode is off)"
            yield Ailment(card=name, what=what, do="nvidia-smi -pm 1", fatal=False)

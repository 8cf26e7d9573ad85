"""`nvidia-smi -L`, `nvidia-smi --query-gpu=... --format=csv` and `nvidia-smi topo -m`."""

import re

from orchestrator.core.facts import Gpu
from orchestrator.core.probes.capability import Capability, capability_of
from orchestrator.core.probes.nvidia import NO_CARDS, Smi
from orchestrator.core.probes.text import MIB, cpu_list, is_one_run, lines, whole, whole_lines

LISTED = re.compile(r"GPU (\d{1,3}): (.+?) \(UUID: .*", re.ASCII)
LISTED_SLICE = re.compile(r"\s+MIG \S+\s+Device\s+\d+:.*", re.ASCII)
AMOUNT = re.compile(r"(\d{1,9})(?: MiB)?", re.ASCII)
BUS_ADDRESS = re.compile(r"(?:0000)?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)", re.ASCII)
UNITS_IN_HEADER = re.compile(r" \[.*\]")


def parse_list(text: str) -> tuple[Gpu, ...] | None:
    """`nvidia-smi -L` names cards in full. How large its slices are it only says roughly."""
    found: list[Gpu] = []
    for line in lines(text):
        if card := LISTED.fullmatch(line):
            found.append(
                Gpu(index=int(card[1]), name=card[2], compute_capability=capability_of(card[2]))
            )
        elif found and LISTED_SLICE.fullmatch(line):
            found[-1] = found[-1].model_copy(update={"mig": True})
    return _in_order(found, text)


def parse_query(text: str) -> Smi:
    """CSV with its header, with or without units. Columns may come in any order."""
    cards = _records(text)
    drivers = {card.get("driver_version") for card in cards}
    return Smi(
        gpus=_in_order([_queried(position, card) for position, card in enumerate(cards)], text),
        driver_version=_version(drivers.pop()) if len(drivers) == 1 else None,
    )


def _records(text: str) -> list[dict[str, str]]:
    rows = [[cell.strip() for cell in line.split(",")] for line in whole_lines(text)]
    header = next((row for row in rows if "name" in row), [])
    names = [UNITS_IN_HEADER.sub("", name) for name in header]
    return [
        dict(zip(names, row, strict=True))
        for row in rows
        if len(row) == len(names) and row != header
    ]


def _queried(position: int, card: dict[str, str]) -> Gpu:
    index = whole(card.get("index"))
    return Gpu(
        index=position if index is None else index,
        name=card["name"],
        compute_capability=_capability(card.get("compute_cap")) or capability_of(card["name"]),
        memory_bytes=_amount(card.get("memory.total")),
        memory_used_bytes=_amount(card.get("memory.used")),
        memory_free_bytes=_amount(card.get("memory.free")),
        mig=_mig(card.get("mig.mode.current")),
        persistence={"Enabled": True, "Disabled": False}.get(card.get("persistence_mode", "")),
        ecc_errors=whole(card.get("ecc.errors.uncorrected.volatile.total")),
    )


def _mig(mode: str | None) -> bool | None:
    """Cards that can't be cut answer N/A."""
    return {"Enabled": True, "Disabled": False, "[N/A]": False}.get(mode or "")


def _amount(text: str | None) -> int | None:
    found = AMOUNT.fullmatch(text or "")
    return int(found[1]) * MIB if found else None


def _capability(text: str | None) -> Capability | None:
    found = re.fullmatch(r"(\d{1,2})\.(\d)", text or "", re.ASCII)
    return (int(found[1]), int(found[2])) if found else None


def _version(text: str | None) -> str | None:
    return text if text and re.fullmatch(r"\d+(\.\d+)+", text, re.ASCII) else None


def _in_order(found: list[Gpu], text: str) -> tuple[Gpu, ...] | None:
    indices = [gpu.index for gpu in found]
    if not found or len(set(indices)) != len(indices):
        return () if NO_CARDS in text and not found else None
    return tuple(sorted(found, key=lambda gpu: gpu.index))


class Topology:
    """`nvidia-smi topo -m`: the CPUs and the NUMA node beside each card."""

    def __init__(self, text: str) -> None:
        self.nodes: dict[int, int] = {}
        self._cpus: dict[int, tuple[int, ...]] = {}
        rows = whole_lines(text)
        header = next((row for row in rows if "CPU Affinity" in row), "")
        separator = "\t" if "\t" in header else None
        before = header.partition("CPU Affinity")[0]
        column = before.count("\t") if separator else len(before.split()) + 1
        for row in rows:
            cells = row.split(separator)
            card = re.fullmatch(r"GPU(\d{1,3})", cells[0].strip(), re.ASCII) if cells else None
            if card and header and len(cells) > column + 1:
                self._add(int(card[1]), cells[column], cells[column + 1])

    def _add(self, card: int, cpus: str, node: str) -> None:
        if known := cpu_list(cpus):
            self._cpus[card] = known
        if (beside := whole(node.strip())) is not None:
            self.nodes[card] = beside

    @property
    def threads(self) -> int | None:
        """CPUs of the host, where all cards are beside the same unbroken run from CPU 0."""
        runs = set(self._cpus.values())
        run = runs.pop() if len(runs) == 1 else ()
        return len(run) if run and run[0] == 0 and is_one_run(run) else None

    @property
    def node_count(self) -> int | None:
        """Nodes of the host, where the cards' nodes have all CPUs between them, siblings too.

        A list in two blocks has the siblings in the second: only with them is "all" sure.
        """
        beside = {self.nodes.get(card): cpus for card, cpus in self._cpus.items()}
        cpus = sorted({cpu for run in self._cpus.values() for cpu in run})
        several = len(beside) > 1 and None not in beside
        if not several or cpus != list(range(len(cpus))):
            return None
        return None if any(map(is_one_run, beside.values())) else len(beside)


def bus_addresses(query: str) -> dict[int, str]:
    """Card -> its PCI address as the kernel writes it: 0000:01:00.0 for 00000000:01:00.0."""
    found = {}
    for card in _records(query):
        index = whole(card.get("index"))
        address = BUS_ADDRESS.fullmatch(card.get("pci.bus_id", ""))
        if index is not None and address:
            found[index] = address[1].lower()
    return found


def held_by(apps: str, addresses: dict[int, str], pids: frozenset[int]) -> dict[int, int]:
    """Card -> bytes of these processes: `nvidia-smi --query-compute-apps=gpu_bus_id,pid,used_gpu_memory`.

    Some drivers (Windows') don't say how much each holds: then it counts as nothing.
    """
    cards = {address: index for index, address in addresses.items()}
    held: dict[int, int] = {}
    for line in whole_lines(apps):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 3 or whole(cells[1]) not in pids:  # noqa: PLR2004 - as asked for
            continue
        address, amount = BUS_ADDRESS.fullmatch(cells[0]), _amount(cells[2])
        card = cards.get(address[1].lower()) if address else None
        if card is not None and amount is not None:
            held[card] = held.get(card, 0) + amount
    return held

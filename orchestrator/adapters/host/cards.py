"""NVIDIA's cards, asked of the driver's own tool."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.adapters.host.commands import ask, is_there
from orchestrator.adapters.host.machine import HERE, text
from orchestrator.core.facts import Gpu
from orchestrator.core.probes.captures import merged_gpus
from orchestrator.core.probes.nvidia import Smi, parse_table
from orchestrator.core.probes.nvidia_health import Health, Seen, ailments, uuid_in
from orchestrator.core.probes.nvidia_lists import bus_addresses, held_by, parse_query
from orchestrator.core.probes.text import first_known, whole

FIELDS = (
    *("index", "name", "memory.total", "memory.used", "memory.free", "persistence_mode"),
    *("driver_version", "pci.bus_id", "ecc.errors.uncorrected.volatile.total"),
)
# Drivers before 510 refuse the whole question for a field they don't know.
NEWER_FIELDS = ("compute_cap", "mig.mode.current")
# Waking a card that no persistence daemon keeps awake takes seconds, for each of them.
WITHIN_S = 30
DMESG_WITHIN_S = 5
KNOWN_CARDS = "proc/driver/nvidia/gpus"
NVIDIA, DISPLAY = "0x10de", "0x03"
WINDOWS_CARD = "dev/dxg"


def read_cards(root: Path = HERE) -> Smi:
    """`gpus`: () where there is none; of cards that no driver serves, their number alone."""
    if not is_there("nvidia-smi"):
        # Windows gives a card to WSL through this device, and does not say how many there are.
        hidden = (root / WINDOWS_CARD).exists()
        return Smi(gpus=None if hidden else _driverless(root))
    query, table = _query(), ask("nvidia-smi", within_s=WITHIN_S)
    listed = _listed(query, table.all if table else "", root)
    if listed.gpus == () and not listed.lost:
        # A driver that can't serve a card finds none: of RTX 50, that without the open modules.
        return replace(listed, gpus=_driverless(root))
    return listed


def read_health(expected: Sequence[int], root: Path = HERE) -> Health:
    """`expected`: indices of the cards that somebody counts on. Takes seconds where one is ill."""
    if not is_there("nvidia-smi"):
        return Health(gpus=None, ailments=())
    query, table = _query(), ask("nvidia-smi", within_s=WITHIN_S)
    drawn, log = table.all if table else "", ask("dmesg", within_s=DMESG_WITHIN_S)
    gpus = _listed(query, drawn, root).gpus
    known = sorted((root / KNOWN_CARDS).glob("*/information"))
    uuids = {path.parent.name: uuid_in(text(path)) for path in known}
    seen = Seen(
        smi=drawn,
        kernel_log=log.text if log else "",  # for root alone, on most systems
        uuids={address: uuid for address, uuid in uuids.items() if uuid},
        gpus=gpus,
        addresses=bus_addresses(query),
        on_the_bus=len(_driverless(root)),
        expected=expected,
    )
    return Health(gpus=gpus, ailments=ailments(seen))


def _listed(query: str, table: str, root: Path) -> Smi:
    queried, drawn = parse_query(query), parse_table(table)
    gpus = merged_gpus((queried.gpus, drawn.gpus))
    return Smi(
        gpus=_beside_nodes(gpus, bus_addresses(query), root) if gpus else gpus,
        lost=drawn.lost,
        driver_version=first_known(queried.driver_version, drawn.driver_version),
        driver_cuda=drawn.driver_cuda,
    )


def read_held(pids: frozenset[int]) -> dict[int, int]:
    """Card -> bytes that these processes hold on it, as far as the driver says."""
    if not pids or not is_there("nvidia-smi"):
        return {}
    fields = "gpu_bus_id,pid,used_gpu_memory"
    answer = ask("nvidia-smi", f"--query-compute-apps={fields}", "--format=csv", within_s=WITHIN_S)
    if answer is None or not answer.ok:
        return {}
    return held_by(answer.text, bus_addresses(_query()), pids)


def _query() -> str:
    for fields in ((*FIELDS, *NEWER_FIELDS), FIELDS):
        answer = ask(
            "nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv", within_s=WITHIN_S
        )
        if answer and answer.ok:
            return answer.text
    return ""


def _beside_nodes(gpus: tuple[Gpu, ...], addresses: dict[int, str], root: Path) -> tuple[Gpu, ...]:
    """The kernel writes -1 where a card is beside no node in particular."""
    devices = root / "sys/bus/pci/devices"
    nodes = {
        index: whole(text(devices / address / "numa_node").strip())
        for index, address in addresses.items()
    }
    return tuple(gpu.model_copy(update={"numa_node": nodes.get(gpu.index)}) for gpu in gpus)


def _driverless(root: Path) -> tuple[Gpu, ...]:
    devices = sorted((root / "sys/bus/pci/devices").glob("*"))
    cards = [
        device
        for device in devices
        if text(device / "vendor").strip() == NVIDIA and text(device / "class").startswith(DISPLAY)
    ]
    return tuple(Gpu(index=index) for index, _ in enumerate(cards))

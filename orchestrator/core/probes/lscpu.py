"""`lscpu`, in English, German, Chinese or a mix of them, and `lscpu -e`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.core.facts import Cpu, Limits, NumaNode
from orchestrator.core.probes.text import (
    any_label,
    cpu_list,
    is_cut,
    labelled,
    lines,
    number,
    whole,
    whole_lines,
)

LABELS = {
    "architecture": ("architecture", "architektur", "架构"),
    "cpus": ("cpu(s)", "cpu"),
    "online": ("on-line cpu(s) list", "liste der online-cpu(s)", "在线 cpu 列表"),
    "threads": ("thread(s) per core", "thread(s) pro kern", "每个核的线程数"),
    "cores": ("core(s) per socket", "kern(e) pro socket", "每个座的核数"),
    "sockets": ("socket(s)", "sockel", "座"),
    "nodes": ("numa node(s)", "numa-knoten", "numa 节点"),
    "model": ("model name", "modellname", "型号名称"),
    "flags": ("flags", "markierungen", "标记"),
    "max mhz": ("cpu max mhz", "maximale taktfrequenz der cpu", "cpu 最大 mhz"),
    "hypervisor": ("hypervisor vendor", "hypervisor-anbieter", "超管理器厂商"),
}
NODE_CPUS = re.compile(r"numa(?: node|-knoten| 节点)\s?(\d{1,4}) cpu(?:\(s\))?")
ONLINE = ("yes", "ja", "是")
COLUMNS = ("CPU", "CORE", "SOCKET", "NODE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lscpu:
    cpu: Cpu
    limits: Limits
    nodes: tuple[NumaNode, ...] | None
    counted_nodes: int | None


def parse_lscpu(text: str) -> Lscpu:
    labels = labelled(text)
    said = {key: any_label(labels, *names) for key, names in LABELS.items()}
    cpu = _cpu(said, flags_complete=not (is_cut(text) and _ends_in_flags(text)))
    count = whole(said["nodes"])
    hypervisor = said["hypervisor"]
    return Lscpu(
        cpu=cpu,
        limits=Limits(virtual=hypervisor.lower() if hypervisor else None),
        nodes=_nodes(text, count, cpu.threads_per_core),
        counted_nodes=count,
    )


def _cpu(said: Mapping[str, str | None], *, flags_complete: bool) -> Cpu:
    # "CPU(s)" counts those that are switched off or belong to others too; the list does not.
    online = cpu_list(said["online"] or "")
    threads = len(online) if online else None
    sockets, per_socket = whole(said["sockets"]), whole(said["cores"])
    cores = sockets * per_socket if sockets and per_socket else None
    installed = whole(said["cpus"])
    if cores and installed and cores > installed:
        sockets = cores = None
    # On hybrid CPUs, and where some are off, what lscpu prints is not true of every core.
    per_core = whole(said["threads"])
    even = per_core and cores and threads == cores * per_core
    flags = said["flags"]
    return Cpu(
        architecture=said["architecture"] or None,
        model=said["model"] or None,
        sockets=sockets,
        physical_cores=cores,
        threads=threads,
        threads_per_core=per_core if even else None,
        flags=frozenset(flags.split()) if flags else None,
        flags_complete=flags_complete,
        max_mhz=number(said["max mhz"]),
    )


def _ends_in_flags(text: str) -> bool:
    last = labelled(lines(text)[-1])
    return any(label in last for label in LABELS["flags"])


def _nodes(text: str, count: int | None, per_core: int | None) -> tuple[NumaNode, ...] | None:
    """Every node's CPUs; None unless as many nodes are listed as there are said to be."""
    found: dict[int, NumaNode] = {}
    for label, value in labelled("\n".join(whole_lines(text))).items():
        if match := NODE_CPUS.fullmatch(label):
            cpus = cpu_list(value)
            node = int(match[1])
            cores = None
            if cpus is not None and per_core and len(cpus) % per_core == 0:
                cores = len(cpus) // per_core
            found[node] = NumaNode(id=node, cpus=cpus, physical_cores=cores)
    if not found or len(found) != count:
        return None
    return tuple(found[node] for node in sorted(found))


@dataclass(frozen=True, slots=True)
class Row:
    """One online CPU of `lscpu -e`."""

    cpu: int
    core: int
    socket: int
    node: int | None


def parse_lscpu_e(text: str) -> tuple[Row, ...]:
    """Its online CPUs. Rows that are cut, or of CPUs that are off, are left out."""
    rows = [line.split() for line in whole_lines(text) if line.strip()]
    header = next((row for row in rows if "CPU" in row and "CORE" in row), None)
    if header is None or "SOCKET" not in header:
        return ()
    found: dict[int, Row] = {}
    for row in rows:
        if len(row) != len(header):
            continue
        cells = dict(zip(header, row, strict=True))
        cpu, core, socket, node = (whole(cells.get(name)) for name in COLUMNS)
        online = cells.get("ONLINE", ONLINE[0]) in ONLINE
        if online and cpu is not None and core is not None and socket is not None:
            found[cpu] = Row(cpu, core, socket, node)
    return tuple(found.values())


def cpu_of_rows(rows: tuple[Row, ...]) -> Cpu:
    if not rows:
        return Cpu()
    cores = len({(row.socket, row.core) for row in rows})
    return Cpu(
        sockets=len({row.socket for row in rows}),
        physical_cores=cores,
        threads=len(rows),
        threads_per_core=len(rows) // cores if len(rows) % cores == 0 else None,
    )


def cores_of_node(rows: tuple[Row, ...], node: int) -> int | None:
    """Physical cores of one node; None where no row names it."""
    return len({(row.socket, row.core) for row in rows if row.node == node}) or None

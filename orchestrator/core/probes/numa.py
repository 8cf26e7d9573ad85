"""NUMA nodes: `numactl --hardware`, `numastat -m`, and the kernel's own files."""

import re
from collections.abc import Mapping

from orchestrator.core.facts import NumaNode
from orchestrator.core.probes.text import MIB, cpu_list, is_one_run, lines, number, whole_lines

COUNT = re.compile(r"available: (\d{1,4}) nodes?\b.*", re.ASCII)
NODE = re.compile(r"node (\d{1,4}) (cpus|size|free):\s*(.*?)\s*", re.ASCII)
MEGABYTES = re.compile(r"(\d{1,9}) MB", re.ASCII)
COUNTED = re.compile(r"(.*?)\s*\((\d{1,5})\)", re.ASCII)
NODE_MEMORY = re.compile(r"(?:Node (\d{1,4}) )?(MemTotal|MemFree):\s+(\d{1,12}) kB\s*", re.ASCII)


def node_count(numactl: str) -> int | None:
    """How many nodes `numactl --hardware` says there are."""
    found = (COUNT.fullmatch(line) for line in lines(numactl))
    return next((int(match[1]) for match in found if match), None)


def parse_numactl(text: str) -> tuple[NumaNode, ...] | None:
    """Every node; None unless as many are listed as it says there are."""
    nodes: dict[int, dict[str, str]] = {}
    for line in whole_lines(text):
        if match := NODE.fullmatch(line):
            nodes.setdefault(int(match[1]), {})[match[2]] = match[3]
    if not nodes or len(nodes) != node_count(text):
        return None
    return tuple(
        NumaNode(
            id=node,
            memory_bytes=_megabytes(nodes[node].get("size")),
            memory_free_bytes=_megabytes(nodes[node].get("free")),
            cpus=_cpus(nodes[node].get("cpus")),
        )
        for node in sorted(nodes)
    )


def _megabytes(text: str | None) -> int | None:
    """The MB of numactl are MiB: it shifts by 20 bits."""
    found = MEGABYTES.fullmatch(text or "")
    return int(found[1]) * MIB if found else None


def _cpus(text: str | None) -> tuple[int, ...] | None:
    """`0 1 2`, or with --cpu-compress `0-2 (3)`: the count must agree."""
    if text is None:
        return None
    counted = COUNTED.fullmatch(text)
    cpus = cpu_list(counted[1] if counted else text)
    return None if counted and cpus is not None and len(cpus) != int(counted[2]) else cpus


def threads_of(nodes: tuple[NumaNode, ...]) -> int | None:
    """How many CPUs there are, where each node lists one unbroken run of them and none is missing.

    A list in several blocks leaves open what lies between: siblings, CPUs that are off, other nodes.
    """
    runs = [node.cpus for node in nodes]
    if any(cpus is None or not is_one_run(cpus) for cpus in runs):
        return None
    cpus = sorted(cpu for run in runs for cpu in run or ())
    return len(cpus) if cpus and cpus == list(range(len(cpus))) else None


def parse_numastat(text: str) -> tuple[NumaNode, ...] | None:
    """`numastat -m`: the nodes that have memory. Its MB are MiB."""
    nodes: tuple[int, ...] = ()
    values: dict[str, list[float | None]] = {}
    for line in whole_lines(text):
        if re.fullmatch(r"\s*(?:Node \d{1,4}\s+)+Total\s*", line, re.ASCII):
            if nodes:  # a wide host is printed in several tables
                return None
            nodes = tuple(int(word) for word in line.split() if word.isdigit())
        elif (row := line.split()) and len(row) == len(nodes) + 2:
            values.setdefault(row[0], [number(word) for word in row[1:-1]])
    if not nodes or "MemTotal" not in values:
        return None
    unknown: list[float | None] = [None] * len(nodes)
    free = values.get("MemFree", unknown)
    return tuple(
        NumaNode(id=node, memory_bytes=_bytes(size), memory_free_bytes=_bytes(left))
        for node, size, left in sorted(
            zip(nodes, values["MemTotal"], free, strict=True), key=lambda node: node[0]
        )
    )


def _bytes(mebibytes: float | None) -> int | None:
    return None if mebibytes is None else int(mebibytes * MIB)


def parse_node_meminfo(text: str) -> tuple[NumaNode, ...]:
    """The meminfo of nodes, one after the other; there may be more of them."""
    nodes: dict[int, dict[str, int]] = {}
    for line in whole_lines(text):
        if (match := NODE_MEMORY.fullmatch(line)) and match[1]:
            nodes.setdefault(int(match[1]), {})[match[2]] = int(match[3]) * 1024
    return tuple(
        NumaNode(
            id=node,
            memory_bytes=sizes.get("MemTotal"),
            memory_free_bytes=sizes.get("MemFree"),
        )
        for node, sizes in sorted(nodes.items())
    )


def parse_node(number_of: int, meminfo: str, cpulist: str, cores: Mapping[int, str]) -> NumaNode:
    """One folder of /sys/devices/system/node. `cores`: CPU -> the list of its core's siblings."""
    found = (NODE_MEMORY.fullmatch(line) for line in lines(meminfo))
    memory = {match[2]: int(match[3]) * 1024 for match in found if match}
    cpus = cpu_list(cpulist)
    known = cpus is not None and all(cpu in cores for cpu in cpus)
    return NumaNode(
        id=number_of,
        memory_bytes=memory.get("MemTotal"),
        memory_free_bytes=memory.get("MemFree"),
        cpus=cpus,
        physical_cores=len({cores[cpu] for cpu in cpus or ()}) if known else None,
    )

"""Cores and CPUs of a host: how many threads may compute, and on which CPUs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.core.facts import HostFacts, NumaNode

CORES_TO_LEAVE_ONE = 4
CORES_TO_LEAVE_TWO = 8


@dataclass(frozen=True, slots=True)
class Choice:
    """`why` names the numbers it comes from."""

    value: int
    why: str


def parse_cpus(text: str) -> frozenset[int]:
    """`0-2,8` is 0, 1, 2 and 8."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def format_cpus(cpus: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1][1:] = [cpu]
        else:
            runs.append([cpu])
    return ",".join("-".join(map(str, run)) for run in runs)


def count_cores(nodes: Sequence[NumaNode], facts: HostFacts, allowed: frozenset[int]) -> Choice:
    """Physical cores of these nodes, or of the host; fewer where a limit says so."""
    of_nodes = [node.physical_cores for node in nodes]
    known = [cores for cores in of_nodes if cores]
    if nodes and len(known) == len(of_nodes):
        cores, why = sum(known), f"{sum(known)} physical cores on {_nodes(nodes)}"
    elif facts.cpu.physical_cores:
        cores = facts.cpu.physical_cores
        why = f"{cores} physical cores"
    else:
        return Choice(1, "the host does not say how many cores it has")
    if facts.limits.cpus is not None and int(facts.limits.cpus) < cores:
        cores = max(1, int(facts.limits.cpus))
        why += f", of which a limit grants {facts.limits.cpus:g}"
    if allowed and len(allowed) < cores:
        cores = len(allowed)
        why += f", of which {cores} may be used"
    return Choice(cores, why)


def cores_on(nodes: Iterable[int], facts: HostFacts) -> int | None:
    """Physical cores of the nodes with these numbers; of the host where one does not say."""
    by_node = {node.id: node.physical_cores for node in facts.nodes or ()}
    counts = [by_node.get(number) for number in nodes]
    known = [cores for cores in counts if cores]
    return sum(known) if known and len(known) == len(counts) else facts.cpu.physical_cores


def choose_threads(cores: Choice, asked: int, *, beside_gpu: bool) -> Choice:
    """Never one for each hyperthread: two on one core wait for the same memory."""
    if asked:
        return Choice(asked, f"as set: threads = {asked}")
    if cores.value < CORES_TO_LEAVE_ONE:
        return Choice(cores.value, f"{cores.why}: too few to leave one out")
    # Measured with a GPU and 16 cores (docs/gpu.md): 14 threads decode a sixth faster than 15.
    if beside_gpu and cores.value >= CORES_TO_LEAVE_TWO:
        why = f"{cores.why}, two left for the GPU's thread and the other services"
        return Choice(cores.value - 2, why)
    others = "the GPU's thread and the other services" if beside_gpu else "the other services"
    return Choice(cores.value - 1, f"{cores.why}, one left for {others}")


def one_cpu_per_core(node: NumaNode) -> tuple[int, ...] | None:
    """The first CPU of every core, where the numbering tells; None where it does not.

    Linux mostly numbers one CPU of every core through all nodes, and then their siblings: a node then
    has two runs of numbers, each as long as it has cores. Some machines number siblings next to
    each other, which one long run may be as well.
    """
    if node.cpus is None or not node.physical_cores:
        return None
    cpus = tuple(sorted(node.cpus))
    if len(cpus) <= node.physical_cores:
        return cpus
    first = cpus[: node.physical_cores]
    apart = first[-1] - first[0] == len(first) - 1 and cpus[node.physical_cores] > first[-1] + 1
    return first if apart else None


def _nodes(nodes: Sequence[NumaNode]) -> str:
    numbers = ", ".join(str(node.id) for node in nodes)
    return f"node {numbers}" if len(nodes) == 1 else f"nodes {numbers}"

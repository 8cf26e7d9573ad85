"""On which NUMA nodes the weights lie, and how their pages are dealt out."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from orchestrator.core.facts import HostFacts, NumaNode
from orchestrator.core.pins import parse_cpus
from orchestrator.core.profile import Engine
from orchestrator.core.room import node_room
from orchestrator.core.settings import Settings


class MemoryPolicy(str, Enum):
    """Where the pages of the weights are to lie.

    ONE_NODE: all on one node, which has the threads too. INTERLEAVE: in turn on all nodes.
    REPLICATE: a copy on every node. LOCAL: a host of one node, where there is nothing to choose.
    """

    LOCAL = "local"
    ONE_NODE = "one node"
    INTERLEAVE = "interleave"
    REPLICATE = "replicate"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a profile runs already, so that a second `up` does not move it."""

    policy: MemoryPolicy
    nodes: tuple[int, ...]
    memory_limit_bytes: int = 0


def standing_of(env: Mapping[str, str], profile: str) -> Standing | None:
    """`env`: what the stack was started with. None where that was another profile."""
    policy, nodes = env.get("STACK_MEMORY_POLICY"), env.get("STACK_MEMORY_NODES", "").split(",")
    known = policy in {each.value for each in MemoryPolicy} and all(map(str.isdecimal, nodes))
    if env.get("STACK_PROFILE") != profile or not known:
        return None
    limit = env.get("STACK_INFERENCE_MEMORY_BYTES", "")
    return Standing(
        MemoryPolicy(policy), tuple(map(int, nodes)), int(limit) if limit.isdecimal() else 0
    )


def choose_nodes(
    engine: Engine, settings: Settings, facts: HostFacts, need: int, standing: Standing | None
) -> tuple[MemoryPolicy, tuple[NumaNode, ...], str]:
    """`need`: bytes of RAM. Returns the policy, the nodes for it, and why."""
    nodes = facts.memory_nodes or ()
    if len(nodes) < 2:  # noqa: PLR2004
        why = "the host has one memory node" if nodes else "the host's memory nodes are not known"
        return MemoryPolicy.LOCAL, nodes, why
    asked = MemoryPolicy(settings.memory_policy) if settings.memory_policy else None
    usable = parse_cpus(settings.inference_cpus) or frozenset(facts.limits.cpuset or ())
    nodes = _of_cpus(usable, nodes)
    kept = _kept(standing, nodes, need)
    best = kept[0] if len(kept) == 1 else _best(nodes, facts, need)
    if asked is MemoryPolicy.LOCAL:
        return asked, (), "as set: memory_policy = local, so the kernel decides by page"
    if asked is MemoryPolicy.ONE_NODE:
        return asked, (best,), f"as set: memory_policy = one node; node {best.id} suits best"
    if asked is MemoryPolicy.REPLICATE and engine is Engine.KT_LEGACY:
        why = f"as set: memory_policy = replicate; its USE_NUMA build, a copy on {len(nodes)} nodes"
        return asked, nodes, why
    if asked is MemoryPolicy.INTERLEAVE:
        return asked, nodes, f"as set: memory_policy = interleave, over {len(nodes)} nodes"
    refused = f"{engine.value} has no copy by node; " if asked is MemoryPolicy.REPLICATE else ""
    if standing is not None and kept and engine is not Engine.KT_SGLANG:
        policy, chosen, why = standing.policy, kept, _why_kept(standing, need)
    else:
        policy, chosen, why = _choose(engine, facts, nodes, best, need)
    return policy, chosen, refused + why


def _kept(
    standing: Standing | None, nodes: tuple[NumaNode, ...], need: int
) -> tuple[NumaNode, ...]:
    """The nodes where it runs, as long as it can: by their size, not by what is free just now."""
    if standing is None:
        return ()
    there = {node.id: node for node in nodes}
    kept = tuple(there[number] for number in standing.nodes if number in there)
    if not kept or len(kept) < len(standing.nodes):
        return ()
    if standing.policy is MemoryPolicy.INTERLEAVE:
        return kept if len(kept) > 1 else ()
    fits = need <= (kept[0].memory_bytes or 0)
    return kept if standing.policy is MemoryPolicy.ONE_NODE and len(kept) == 1 and fits else ()


def _why_kept(standing: Standing, need: int) -> str:
    where = ", ".join(map(str, standing.nodes))
    return (
        f"{_gb(need)} needed; it runs so already (nodes {where}), and to move it would load all "
        "weights anew; memory_policy chooses otherwise"
    )


def _of_cpus(cpus: frozenset[int], nodes: tuple[NumaNode, ...]) -> tuple[NumaNode, ...]:
    """Where not all CPUs may be used, the nodes that have those: weights are read from there."""
    return tuple(node for node in nodes if cpus & set(node.cpus or ())) or nodes


def _best(nodes: tuple[NumaNode, ...], facts: HostFacts, need: int) -> NumaNode:
    """The node for all of it: not the one with most room, which changes from one `up` to the next."""

    def merit(node: NumaNode) -> tuple[bool, int, int]:
        fits = (node_room(node, facts) or 0) >= need
        return fits, node.physical_cores or 0, -node.id

    return max(nodes, key=merit)


def _choose(
    engine: Engine, facts: HostFacts, nodes: tuple[NumaNode, ...], best: NumaNode, need: int
) -> tuple[MemoryPolicy, tuple[NumaNode, ...], str]:
    if engine is Engine.KT_SGLANG:
        why = (
            f"its {len(nodes)} thread pools each hold 1/{len(nodes)} of every expert on their node"
        )
        return MemoryPolicy.INTERLEAVE, nodes, why
    room = node_room(best, facts)
    spread = f"so the pages are spread over {len(nodes)}"
    if room is None:
        why = f"{_gb(need)} needed, ? on node {best.id}: whether it has room is not known, {spread}"
        return MemoryPolicy.INTERLEAVE, nodes, why
    numbers = f"{_gb(need)} needed, {_gb(room)} on node {best.id}"
    if need <= room:
        return MemoryPolicy.ONE_NODE, (best,), f"{numbers}: all of it fits beside its own cores"
    why = f"{numbers}: too little for one node, {spread}"
    return MemoryPolicy.INTERLEAVE, nodes, why


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"

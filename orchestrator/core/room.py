"""What a host has left for us on each NUMA node and card. None where it does not say."""

from collections.abc import Mapping, Sequence

from orchestrator.core.facts import Gpu, HostFacts, NumaNode


def node_room(node: NumaNode, facts: HostFacts) -> int | None:
    """A node's memory, less its part of what is in use for good.

    Its own free memory alone says too little: the page cache is not in it, and is given back when
    asked for. What is in use for good (total - available) is known for the whole host only, so a
    node is charged with it in the proportion of all that is taken there.
    """
    if node.memory_bytes is None or node.memory_free_bytes is None:
        return _even_part(node, facts)
    taken = max(0, node.memory_bytes - node.memory_free_bytes)
    total, available = facts.memory.total_bytes, facts.memory.available_bytes
    taken_everywhere = _taken_everywhere(facts)
    if total is None or available is None or taken_everywhere is None:
        return node.memory_free_bytes
    for_good = max(0, total - available) * taken // max(1, taken_everywhere)
    return min(node.memory_bytes, max(node.memory_free_bytes, node.memory_bytes - for_good))


def _even_part(node: NumaNode, facts: HostFacts) -> int | None:
    total, available = facts.memory.total_bytes, facts.memory.available_bytes
    if node.memory_bytes is None or not total or available is None:
        return node.memory_free_bytes
    return node.memory_bytes * min(available, total) // total


def _taken_everywhere(facts: HostFacts) -> int | None:
    taken = 0
    for node in facts.nodes or ():
        if node.memory_bytes is None or node.memory_free_bytes is None:
            return None
        taken += max(0, node.memory_bytes - node.memory_free_bytes)
    return taken


def card_room(gpu: Gpu) -> int | None:
    """What is free on it; of a card that MIG cuts, its largest slice."""
    if gpu.mig and gpu.mig_slices_bytes:
        return max(gpu.mig_slices_bytes)
    if gpu.memory_free_bytes is not None:
        return gpu.memory_free_bytes
    if gpu.memory_bytes is None or gpu.memory_used_bytes is None:
        return None
    return gpu.memory_bytes - gpu.memory_used_bytes


def given_back(gpus: Sequence[Gpu], held: Mapping[int, int]) -> tuple[Gpu, ...]:
    """The cards as they are once whoever has `held` (card -> bytes) has ended."""
    return tuple(
        gpu.model_copy(
            update={
                "memory_used_bytes": max(0, gpu.memory_used_bytes - held[gpu.index]),
                "memory_free_bytes": min(
                    gpu.memory_bytes or 0, (gpu.memory_free_bytes or 0) + held[gpu.index]
                ),
            }
        )
        if gpu.index in held and gpu.memory_used_bytes is not None
        else gpu
        for gpu in gpus
    )

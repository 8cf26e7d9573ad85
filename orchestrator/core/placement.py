"""Where the parts of a model run on this host: threads, pins, memory policy, limits, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from orchestrator.core.arguments import Told, cpu_infer, engine_arguments
from orchestrator.core.facts import Gpu, HostFacts, NumaNode
from orchestrator.core.inventory import Inventory, WeightClass
from orchestrator.core.pins import (
    choose_threads,
    count_cores,
    format_cpus,
    one_cpu_per_core,
    parse_cpus,
)
from orchestrator.core.profile import Engine, Profile
from orchestrator.core.room import node_room
from orchestrator.core.settings import Settings
from orchestrator.core.terms import GIB, MIB, Term, is_repacked, memory_terms

GPU_SHM_BYTES = 16 * GIB
DOCKER_SHM_BYTES = 64 * MIB


class MemoryPolicy(str, Enum):
    """Where the pages of the weights are to lie.

    ONE_NODE: all on one node, which has the threads too. INTERLEAVE: in turn on all nodes.
    REPLICATE: a copy on every node. LOCAL: a host of one node, where there is nothing to choose.
    """

    LOCAL = "local"
    ONE_NODE = "one node"
    INTERLEAVE = "interleave"
    REPLICATE = "replicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`nodes`: NUMA nodes that hold weights and threads. `threads`: worker threads over all of them.

    `cpuset`: CPUs the engine may use, as Docker spells them; "" is all. `gpus`: indices of the cards
    used. `gpu_experts`: routed experts of each layer that live on the GPU. `kv_tokens`: tokens of KV
    cache over all slots. `arguments`: how this engine is told, in its own words. `reasons`: field
    name -> why it has this value, with the numbers.
    """

    policy: MemoryPolicy
    nodes: tuple[int, ...]
    threads: int
    cpuset: str
    gpus: tuple[int, ...]
    gpu_experts: int
    kv_tokens: int
    slots: int
    context_tokens: int
    max_tokens: int
    memory_limit_bytes: int
    shm_bytes: int
    arguments: tuple[str, ...]
    reasons: Mapping[str, str]


def place(
    profile: Profile, settings: Settings, facts: HostFacts, inventory: Inventory | None
) -> Placement:
    terms = memory_terms(profile, settings, inventory)
    policy, nodes, why_policy = _policy(profile.engine, settings, facts, terms)
    cpuset, why_cpuset = _cpuset(profile.engine, settings, facts, nodes)
    allowed = parse_cpus(settings.inference_cpus) or frozenset(facts.limits.cpuset or ())
    uses_gpu = profile.engine is not Engine.LLAMACPP
    cores = count_cores(nodes, facts, allowed)
    threads = choose_threads(cores, settings.threads, beside_gpu=uses_gpu)
    gpus, why_gpus = _gpus(profile, settings, facts)
    limit, why_limit = _memory_limit(profile, settings, inventory, terms, policy, len(nodes))
    max_tokens = min(settings.max_tokens, settings.context_tokens - 1)
    told = Told(
        model_name=settings.model_name,
        threads=threads.value,
        nodes=tuple(node.id for node in nodes),
        cards=max(1, len(gpus)),
        gpu_experts=settings.gpu_experts if uses_gpu else 0,
        slots=settings.slots,
        context_tokens=settings.context_tokens,
        max_tokens=max_tokens,
        copies=policy is MemoryPolicy.REPLICATE,
    )
    return Placement(
        policy=policy,
        nodes=told.nodes,
        threads=told.threads,
        cpuset=cpuset,
        gpus=gpus,
        gpu_experts=told.gpu_experts,
        kv_tokens=told.kv_tokens,
        slots=told.slots,
        context_tokens=told.context_tokens,
        max_tokens=max_tokens,
        memory_limit_bytes=limit,
        shm_bytes=GPU_SHM_BYTES if uses_gpu else DOCKER_SHM_BYTES,
        arguments=engine_arguments(profile, told),
        reasons={
            "policy": why_policy,
            "nodes": why_policy,
            "threads": threads.why + _as_told(profile.engine, threads.value),
            "cpuset": why_cpuset,
            "gpus": why_gpus,
            "gpu_experts": f"{told.gpu_experts} of each layer, as set"
            if uses_gpu
            else "this engine has no GPU",
            "kv_tokens": f"{told.context_tokens} of context x {told.slots} slots",
            "slots": f"requests at once, as set: {told.slots}",
            "context_tokens": f"of each slot, as set: {told.context_tokens}",
            "max_tokens": f"as set: {settings.max_tokens}; a reply must fit into the context of "
            f"{told.context_tokens} with at least one token of the prompt",
            "memory_limit_bytes": why_limit,
            "shm_bytes": "16 GiB: what KTransformers' own container recipes give at the least"
            if uses_gpu
            else "64 MiB, Docker's own: this engine shares no memory",
        },
    )


def _as_told(engine: Engine, threads: int) -> str:
    if engine is not Engine.KT_LEGACY:
        return ""
    return f"; it is told --cpu_infer {cpu_infer(threads)}, of which it makes one less"


def _policy(
    engine: Engine, settings: Settings, facts: HostFacts, terms: Sequence[Term]
) -> tuple[MemoryPolicy, tuple[NumaNode, ...], str]:
    nodes = facts.memory_nodes or ()
    if len(nodes) < 2:  # noqa: PLR2004
        why = "the host has one memory node" if nodes else "the host's memory nodes are not known"
        return MemoryPolicy.LOCAL, nodes, why
    asked = MemoryPolicy(settings.memory_policy) if settings.memory_policy else None
    best = _best(nodes, facts, sum(term.size_bytes for term in terms))
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
    policy, chosen, why = _choose(engine, facts, nodes, best, sum(t.size_bytes for t in terms))
    return policy, chosen, refused + why


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


def _cpuset(
    engine: Engine, settings: Settings, facts: HostFacts, nodes: tuple[NumaNode, ...]
) -> tuple[str, str]:
    if settings.inference_cpus:
        return settings.inference_cpus, f"as set: inference_cpus = {settings.inference_cpus}"
    everything = {cpu for node in facts.nodes or () for cpu in node.cpus or ()}
    of_nodes = {cpu for node in nodes for cpu in node.cpus or ()}
    if not of_nodes or any(node.cpus is None for node in nodes):
        return "", "all CPUs: which of them belong to which node is not known"
    if engine is Engine.KT_SGLANG:
        chosen, why = of_nodes, "the engine pins its threads to cores itself"
    else:
        firsts = [one_cpu_per_core(node) for node in nodes]
        known = [cpus for cpus in firsts if cpus is not None]
        if len(known) == len(firsts):
            chosen = {cpu for cpus in known for cpu in cpus}
            why = f"one CPU of each physical core, {len(chosen)} of {len(everything)}"
        else:
            chosen = of_nodes
            why = "which CPUs share a core can't be told from their numbers"
    if facts.limits.cpuset is not None:
        chosen &= set(facts.limits.cpuset)
    if not chosen or chosen == everything:
        return "", f"all CPUs: {why}"
    return format_cpus(chosen), why


def _gpus(profile: Profile, settings: Settings, facts: HostFacts) -> tuple[tuple[int, ...], str]:
    if profile.engine is Engine.LLAMACPP or profile.needs.vram is None:
        on_cpu = f"{profile.engine.value} runs {profile.name} on the CPU"
        return (), f"{_unused(facts.gpus)}: {on_cpu}" if facts.gpus else on_cpu
    if settings.gpus:
        chosen = tuple(int(index) for index in settings.gpus.split(","))
        return chosen, f"as set: gpus = {settings.gpus}"
    if not facts.gpus:
        return (), "the host has no card" if facts.gpus == () else "its cards are not known"
    whole = [gpu for gpu in facts.gpus if not gpu.mig]
    wanted = max(1, profile.needs.gpus)
    # By size and not by what is free: once the engine runs, its own card has least.
    largest = sorted(whole, key=lambda gpu: (-(gpu.memory_bytes or 0), gpu.index))[:wanted]
    if not largest:
        return (), "MIG cuts every card of this host, and a slice is not used"
    found = ", ".join(_size(gpu) for gpu in largest)
    return tuple(sorted(gpu.index for gpu in largest)), f"the largest: {found}"


def _unused(gpus: Sequence[Gpu]) -> str:
    if len(gpus) > 1:
        return f"{len(gpus)} cards are not used"
    return f"the {gpus[0].name or 'card'} is not used"


def _size(gpu: Gpu) -> str:
    size = "an unknown amount" if gpu.memory_bytes is None else _gb(gpu.memory_bytes)
    return f"card {gpu.index} has {size}"


def _memory_limit(  # noqa: PLR0913, PLR0917 - each decides it
    profile: Profile,
    settings: Settings,
    inventory: Inventory | None,
    terms: Sequence[Term],
    policy: MemoryPolicy,
    nodes: int,
) -> tuple[int, str]:
    """It counts page cache. What llama.cpp packs anew is in memory twice while it loads."""
    if settings.inference_memory_bytes:
        given = settings.inference_memory_bytes
        return given, f"as set: inference_memory_bytes = {given}"
    copies = nodes - 1 if policy is MemoryPolicy.REPLICATE else 0
    experts = WeightClass.ROUTED_EXPERTS.value
    need = sum(t.size_bytes * (1 + copies * (t.name == experts)) for t in terms)
    twice = 0
    if profile.engine is Engine.LLAMACPP and inventory is not None:
        twice = sum(weight.size_bytes for weight in inventory.weights if is_repacked(weight))
    margin = 256 * MIB + need // 20 + twice
    least = profile.needs.memory.least_bytes
    limit = -(-max(need + margin, least) // MIB) * MIB
    why = f"{_gb(need)} of the budget + {_gb(margin)} of margin, at least {_gb(least)}"
    return limit, f"{why}; page cache counts in it"


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"

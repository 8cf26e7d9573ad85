"""Where the parts of a model run on this host: threads, pins, memory policy, limits, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from typing_extensions import assert_never

from orchestrator.core.arguments import Told, cpu_infer, engine_arguments
from orchestrator.core.facts import HostFacts, NumaNode
from orchestrator.core.gpu_choice import choose_gpus
from orchestrator.core.inventory import Inventory, WeightClass
from orchestrator.core.kt_legacy.form import Form
from orchestrator.core.memory_policy import MemoryPolicy, Standing, choose_nodes
from orchestrator.core.pins import (
    choose_threads,
    count_cores,
    format_cpus,
    one_cpu_per_core,
    parse_cpus,
)
from orchestrator.core.profile import Engine, Profile
from orchestrator.core.settings import Settings
from orchestrator.core.terms import GIB, MIB, Term, is_repacked, memory_terms
from orchestrator.core.vram import card_terms

__all__ = ["MemoryPolicy", "Placement", "Standing", "place"]

GPU_SHM_BYTES = 16 * GIB
DOCKER_SHM_BYTES = 64 * MIB


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


def place(  # noqa: PLR0913, PLR0917 - each decides it
    profile: Profile,
    settings: Settings,
    facts: HostFacts,
    inventory: Inventory | None,
    standing: Standing | None = None,
    form: Form | None = None,
) -> Placement:
    """`standing`: where this profile runs already. `form`: which modules kt-legacy puts where."""
    gpus, why_gpus = choose_gpus(
        profile, settings, facts, partial(_card_needs, profile, settings, inventory)
    )
    uses_gpu = profile.engine is not Engine.LLAMACPP or bool(gpus)
    terms = memory_terms(profile, settings, inventory, form, on_card=bool(gpus))
    need = sum(term.size_bytes for term in terms)
    policy, nodes, why_policy = choose_nodes(profile.engine, settings, facts, need, standing)
    cpuset, why_cpuset = _cpuset(profile.engine, settings, facts, nodes)
    allowed = parse_cpus(settings.inference_cpus) or frozenset(facts.limits.cpuset or ())
    cores = count_cores(nodes, facts, allowed)
    threads = choose_threads(cores, settings.threads, beside_gpu=uses_gpu)
    packed_anew = inventory if profile.engine is Engine.LLAMACPP and not gpus else None
    limit, why_limit = _memory_limit(
        profile, settings, packed_anew, terms, policy, len(nodes), standing
    )
    shm, why_shm = _shm(profile.engine)
    max_tokens = min(settings.max_tokens, settings.context_tokens - 1)
    told = Told(
        model_name=settings.model_name,
        threads=threads.value,
        nodes=tuple(node.id for node in nodes),
        cards=max(1, len(gpus)),
        gpu_experts=settings.gpu_experts if profile.engine is Engine.KT_SGLANG else 0,
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
        shm_bytes=shm,
        arguments=engine_arguments(profile, told),
        reasons={
            "policy": why_policy,
            "nodes": why_policy,
            "threads": threads.why + _as_told(profile.engine, threads.value),
            "cpuset": why_cpuset,
            "gpus": why_gpus,
            "gpu_experts": _why_gpu_experts(profile.engine, told.gpu_experts),
            "kv_tokens": f"{told.context_tokens} of context x {told.slots} slots",
            "slots": f"requests at once, as set: {told.slots}",
            "context_tokens": f"of each slot, as set: {told.context_tokens}",
            "max_tokens": f"as set: {settings.max_tokens}; a reply must fit into the context of "
            f"{told.context_tokens} with at least one token of the prompt",
            "memory_limit_bytes": why_limit,
            "shm_bytes": why_shm,
        },
    )


def _card_needs(
    profile: Profile, settings: Settings, inventory: Inventory | None, cards: int
) -> tuple[int, ...]:
    terms = card_terms(profile, settings, inventory, cards)
    return tuple(sum(term.size_bytes for term in card) for card in terms)


def _shm(engine: Engine) -> tuple[int, str]:
    if engine is Engine.LLAMACPP:
        return DOCKER_SHM_BYTES, "64 MiB, Docker's own: this engine shares no memory"
    return GPU_SHM_BYTES, "16 GiB: what KTransformers' own container recipes give at the least"


def _as_told(engine: Engine, threads: int) -> str:
    if engine is not Engine.KT_LEGACY:
        return ""
    return f"; it is told --cpu_infer {cpu_infer(threads)}, of which it makes one less"


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


def _memory_limit(  # noqa: PLR0913, PLR0917 - each decides it
    profile: Profile,
    settings: Settings,
    packed_anew: Inventory | None,
    terms: Sequence[Term],
    policy: MemoryPolicy,
    nodes: int,
    standing: Standing | None,
) -> tuple[int, str]:
    """It counts page cache. What llama.cpp packs anew is in memory twice while it loads.

    Files whose headers can be read only once they are here give another sum then: a limit that is
    enough stays, so that a second `up` does not start the engine anew for it.
    """
    if settings.inference_memory_bytes:
        given = settings.inference_memory_bytes
        return given, f"as set: inference_memory_bytes = {given}"
    copies = nodes - 1 if policy is MemoryPolicy.REPLICATE else 0
    experts = WeightClass.ROUTED_EXPERTS.value
    need = sum(t.size_bytes * (1 + copies * (t.name == experts)) for t in terms)
    twice = 0
    if packed_anew is not None:
        twice = sum(weight.size_bytes for weight in packed_anew.weights if is_repacked(weight))
    margin = 256 * MIB + need // 20 + twice
    least = profile.needs.memory.least_bytes
    limit = -(-max(need + margin, least) // MIB) * MIB
    if standing is not None and limit <= standing.memory_limit_bytes <= 2 * limit:
        return standing.memory_limit_bytes, f"as it runs now: enough for {_gb(limit)}"
    why = f"{_gb(need)} of the budget + {_gb(margin)} of margin, at least {_gb(least)}"
    return limit, f"{why}; page cache counts in it"


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _why_gpu_experts(engine: Engine, number: int) -> str:
    match engine:
        case Engine.KT_SGLANG:
            return f"{number} of each layer, as set"
        case Engine.KT_LEGACY:
            return "the rules of its placement say which layers' lie there"
        case Engine.LLAMACPP:
            return "this engine keeps them in RAM"
        case _:
            assert_never(engine)

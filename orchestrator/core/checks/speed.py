"""How fast will it start and run here? None of these refuses."""

import math

from orchestrator.core.checks.check import Check, Remedy, counted
from orchestrator.core.checks.finding import Finding, Said
from orchestrator.core.facts import HostFacts
from orchestrator.core.pins import cores_on, format_cpus, parse_cpus
from orchestrator.core.placement import MemoryPolicy, Placement
from orchestrator.core.profile import Profile
from orchestrator.core.settings import Settings

THREADS = Check(
    name="threads",
    why=Said(
        "one worker more than there are cores, and all of them wait for the two that share one: "
        "users saw 1 token/s; hyperthreads do not count",
        "线程比物理核心多一个，所有线程就都要等共用核心的那两个：有用户只剩 1 token/s；超线程不算核心",
    ),
    ask="lscpu",
)
INFERENCE_CPUS = Check(
    name="inference-cpus",
    why=Said(
        "Docker makes no container for CPUs that the host does not have: the start ends with "
        "`Requested CPUs are not available`",
        "指定了主机没有的 CPU 时，Docker 无法创建容器：启动时会报 Requested CPUs are not available",
    ),
    ask="lscpu --extended",
)
MEMORY_POLICY = Check(
    name="memory-policy",
    why=Said(
        "with weights spread over sockets, part of each token is read through the link between them: two sockets "
        "are rarely twice as fast as one, and users saw no gain at all",
        "权重分布在多个 CPU 插槽时，每个 token 都有一部分要经过插槽间的互联读取："
        "两路很少是单路的两倍，有用户完全没有提速",
    ),
    ask="numactl --hardware",
)
LOAD_TIME = Check(
    name="load-time",
    why=Said(
        "the engine reads all weights before it answers; a start that is longer than the gate's "
        "patience is taken for a failure",
        "引擎要读完全部权重才能应答；启动时间超过等待上限就会被当成失败",
    ),
    ask="python3 -m orchestrator doctor --only load-time",
)


def threads(placement: Placement, facts: HostFacts) -> Finding:
    cores = cores_on(placement.nodes, facts)
    if cores is None:
        return THREADS.unknown(f">= {counted(placement.threads, 'core')}")
    granted = facts.limits.cpus
    room = cores if granted is None else min(cores, int(granted))
    found, needed = counted(room, "core"), counted(placement.threads, "thread")
    if placement.threads <= max(1, room):
        return THREADS.ok(found, needed)
    remedy = Remedy(
        f"export ORCH_THREADS={max(1, room)}", f"export ORCH_THREADS={placement.threads}"
    )
    return THREADS.warn(found, needed, remedy)


def inference_cpus(settings: Settings, facts: HostFacts) -> Finding:
    asked, needed = settings.inference_cpus, _cpus_of(facts)
    if not asked:
        return INFERENCE_CPUS.ok("-")
    if needed is None:
        return INFERENCE_CPUS.unknown(asked)
    if parse_cpus(asked) <= needed:
        return INFERENCE_CPUS.ok(asked, format_cpus(needed))
    appliance = Said(
        "or take the line out of appliance.toml: the CPUs are then chosen for you",
        "或从 appliance.toml 中删掉该行：CPU 会自动选择",
    )
    remedy = Remedy("unset ORCH_INFERENCE_CPUS", f"export ORCH_INFERENCE_CPUS={asked}", appliance)
    return INFERENCE_CPUS.block(asked, format_cpus(needed), remedy)


def _cpus_of(facts: HostFacts) -> frozenset[int] | None:
    """CPUs that a container may be given; None where the nodes do not say."""
    if not facts.nodes or any(node.cpus is None for node in facts.nodes):
        return None
    return frozenset(cpu for node in facts.nodes for cpu in node.cpus or ())


def memory_policy(placement: Placement, facts: HostFacts) -> Finding:
    """Where there may be several nodes that nobody could tell apart, so is their use."""
    if facts.nodes is None and facts.node_count != 1:
        return MEMORY_POLICY.unknown(MemoryPolicy.ONE_NODE.value)
    found = f"{placement.policy.value} ({len(placement.nodes)})"
    if placement.policy is not MemoryPolicy.INTERLEAVE:
        return MEMORY_POLICY.ok(found)
    fewer = Said(
        "nothing to do where one node is too small; where it is large enough: "
        "ORCH_MEMORY_POLICY='one node'",
        "单个节点放不下时无需处理；放得下时可设 ORCH_MEMORY_POLICY='one node'",
    )
    return MEMORY_POLICY.warn(found, MemoryPolicy.ONE_NODE.value, Remedy(next_step=fewer))


def load_time(profile: Profile, settings: Settings, facts: HostFacts) -> Finding:
    """From the rate that was measured on this disk: a hard disk and a network show themselves."""
    patience = settings.load_timeout_s
    rate = facts.disk.read_bytes_per_s if facts.disk else None
    if not rate:
        return LOAD_TIME.unknown(f"<= {_minutes(patience)}")
    expected = profile.model.total_bytes / rate
    found = f"{_minutes(expected)} ({rate / 1e9:.2f} GB/s)"
    if expected <= patience:
        return LOAD_TIME.ok(found, f"<= {_minutes(patience)}")
    faster = Said(
        "or put the weights on a local SSD: ORCH_WEIGHTS_DIR=FOLDER",
        "或把权重放到本地 SSD：ORCH_WEIGHTS_DIR=目录",
    )
    remedy = Remedy(
        f"export ORCH_LOAD_TIMEOUT_S={math.ceil(2 * expected)}",
        "unset ORCH_LOAD_TIMEOUT_S",
        faster,
    )
    return LOAD_TIME.warn(found, f"<= {_minutes(patience)}", remedy)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"  # noqa: PLR2004

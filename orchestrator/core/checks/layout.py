"""Checks of how much RAM there really is for us, and on which nodes, whatever the profile."""

from orchestrator.core.checks.check import NOT_NEEDED, Check, Remedy, gb
from orchestrator.core.checks.finding import Finding, Said
from orchestrator.core.facts import HostFacts

EVEN = "equal nodes"
UNEVEN = 0.9  # of the largest node: the kernel's own share differs by a few per cent

CGROUP_LIMIT = Check(
    name="cgroup-limit",
    why=Said(
        "free and /proc/meminfo show the whole machine, and the cgroup grants only a part: "
        "the kernel kills the engine (exit 137) where it takes more, page cache included",
        "free 和 /proc/meminfo 显示的是整台机器，而 cgroup 只给其中一部分："
        "引擎（含页缓存）一旦超出，就会被内核杀掉（退出码 137）",
    ),
    ask="cat /sys/fs/cgroup/memory.max",
)
MEMORY_ONLY_NODES = Check(
    name="memory-only-nodes",
    why=Said(
        "nodes without CPUs hold the GPU's memory (GH200, GB10) or slow memory (CXL): a launcher "
        "that counts them starts threads for nodes that have no cores",
        "没有 CPU 的节点是 GPU 显存（GH200、GB10）或慢速内存（CXL）："
        "启动程序若把它们计入，就会为没有核心的节点创建线程",
    ),
    ask="numactl --hardware",
)
NODE_BALANCE = Check(
    name="node-balance",
    why=Said(
        "weights are spread evenly over the nodes: the smallest one fills first, and a node "
        "without memory reads all of its weights from another",
        "权重会平均分布到各节点：最小的节点最先占满；没有内存的节点只能从其他节点读取全部权重",
    ),
    ask="numactl --hardware",
)


def cgroup_limit(facts: HostFacts) -> Finding:
    limit, total = facts.limits.memory_bytes, facts.memory.total_bytes
    if limit is None:
        asked = "memory" in facts.limits.unlimited
        return CGROUP_LIMIT.ok("max") if asked else CGROUP_LIMIT.unknown("max")
    if total is not None and limit >= total:
        return CGROUP_LIMIT.ok(gb(limit), gb(total))
    raise_it = Said(
        "raise the limit where this container or slice was made "
        "(docker update --memory, systemctl set-property NAME MemoryMax=), "
        "or rent a host whose memory is all yours",
        "请在创建该容器或 slice 的地方提高限额（docker update --memory、"
        "systemctl set-property NAME MemoryMax=），或租用独占内存的主机",
    )
    needed = "max" if total is None else gb(total)
    return CGROUP_LIMIT.warn(gb(limit), needed, Remedy(next_step=raise_it))


def memory_only_nodes(facts: HostFacts) -> Finding:
    if facts.nodes is None:
        return MEMORY_ONLY_NODES.unknown("0")
    extra = [node for node in facts.nodes if node.cpus == ()]
    if not extra:
        return MEMORY_ONLY_NODES.ok("0", "0")
    held = sum(node.memory_bytes or 0 for node in extra)
    left_out = Said(
        f"nothing to do: they are left out of every plan here; their {gb(held)} are not RAM "
        "for the weights",
        f"无需处理：所有配置都不使用这些节点；其 {gb(held)} 不算作可放权重的内存",
    )
    found = f"{len(extra)} of {len(facts.nodes)} ({gb(held)})"
    return MEMORY_ONLY_NODES.warn(found, "0", Remedy(next_step=left_out))


def node_balance(facts: HostFacts) -> Finding:
    if facts.nodes is None:
        return NODE_BALANCE.unknown(EVEN)
    sizes = {node.id: node.memory_bytes for node in facts.nodes if node.cpus != ()}
    known = [size for size in sizes.values() if size is not None]
    if len(known) < len(sizes) or not known:
        return NODE_BALANCE.unknown(EVEN)
    least, most = min(known), max(known)
    needed = f">= {gb(UNEVEN * most)} each" if len(known) > 1 else NOT_NEEDED
    found = gb(most) if least == most else f"{gb(least)} - {gb(most)}"
    if least >= UNEVEN * most:
        return NODE_BALANCE.ok(found, needed)
    empty = sum(1 for size in known if size == 0)
    even_out = Said(
        f"fill the memory slots of all sockets alike (empty nodes: {empty} of {len(known)}); "
        "until then: ORCH_MEMORY_POLICY='one node' where the model fits on one",
        f"请让各 CPU 插槽的内存条数量一致（没有内存的节点：{empty} / {len(known)}）；"
        "在此之前，若单个节点放得下模型，可设 ORCH_MEMORY_POLICY='one node'",
    )
    return NODE_BALANCE.warn(found, needed, Remedy(next_step=even_out))

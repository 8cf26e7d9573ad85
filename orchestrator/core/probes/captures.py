"""Outputs that somebody saved or pasted, one file each, as the facts of their host.

Where two of them disagree, the more specific counts; where none is, the fact is unknown.
"""

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.core.facts import X86, Cpu, Docker, Gpu, HostFacts, Limits, Memory, NumaNode
from orchestrator.core.probes import cgroup, disk, docker, kernel, lscpu, memory, numa, nvidia
from orchestrator.core.probes.capability import CUT
from orchestrator.core.probes.commands import COMMANDS
from orchestrator.core.probes.nvidia_lists import Topology, parse_list, parse_query
from orchestrator.core.probes.text import agreed, first_known

SUFFIXES = (".txt", ".json", ".csv", ".log")
# The names that count, without their suffix; what else lies there is ignored.
NAMES = tuple(COMMANDS)
# What tells nothing by itself is judged together with these.
BESIDE = {
    "buddyinfo": {"uname": "x86_64\n"},
    "node-meminfo": {"lscpu": "NUMA node(s): 1\nNUMA node0 CPU(s): 0\n"},
    "topo": {"nvidia-smi-L": "GPU 0: NVIDIA H200 (UUID: GPU-0)\n"},
}


def is_known(name: str) -> bool:
    """Does a file of this name count?"""
    return _stem(name) in COMMANDS


def is_understood(name: str, text: str) -> bool:
    """Does this one say anything at all of its host?"""
    stem = _stem(name)
    if stem in cgroup.FILES:
        return cgroup.is_one(text)
    beside = BESIDE.get(stem, {})
    return facts_of(beside | {stem: text}) != facts_of(beside)


def command_of(name: str) -> str:
    """What is to be in a file of this name."""
    return COMMANDS[_stem(name)]


def _stem(name: str) -> str:
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def facts_of(captures: Mapping[str, str]) -> HostFacts:
    known = {_stem(name): text for name, text in captures.items() if is_known(name)}
    texts = dict.fromkeys(NAMES, "") | known
    uname = kernel.parse_uname(texts["uname"])
    listed = lscpu.parse_lscpu(texts["lscpu"])
    rows = lscpu.parse_lscpu_e(texts["lscpu-e"])
    topology = Topology(texts["topo"])
    table = nvidia.parse_table(texts["nvidia-smi"])
    query = parse_query(texts["nvidia-smi-query"])
    nodes, counted = _nodes(texts, listed, rows)
    disks = disk.parse_df(texts["df"])
    cpu = _cpu(texts, (listed.cpu, lscpu.cpu_of_rows(rows)), uname, (nodes or (), topology))
    return HostFacts(
        system=first_known(uname.system, "Windows" if table.windows else None),
        kernel=uname.kernel,
        cpu=cpu,
        memory=_memory(texts, cpu),
        nodes=nodes,
        counted_nodes=counted or (topology.node_count if nodes is None else None),
        numa_balancing=kernel.parse_switch(texts["numa-balancing"]),
        gpus=merged_gpus((query.gpus, parse_list(texts["nvidia-smi-L"]), table.gpus), topology),
        lost_gpus=table.lost,
        driver_version=first_known(query.driver_version, table.driver_version),
        driver_cuda=table.driver_cuda,
        disk=disks[0] if len(disks) == 1 else None,
        disks=disks,
        limits=_limits(texts, listed, uname),
        docker=_docker(texts),
    )


def _cpu(
    texts: Mapping[str, str],
    listed: tuple[Cpu, Cpu],
    uname: kernel.Uname,
    around: tuple[tuple[NumaNode, ...], Topology],
) -> Cpu:
    info, power = kernel.parse_cpuinfo(texts["cpuinfo"]), kernel.parse_cpupower(texts["cpupower"])
    (named, rows), (nodes, topology) = listed, around
    differ = any(
        None not in (one, other) and one != other
        for one, other in (
            (named.threads, rows.threads),
            (named.physical_cores, rows.physical_cores),
            (named.sockets, rows.sockets),
        )
    )
    layout = [] if differ else [named, rows, info]
    flags = _flags(named, info)
    return Cpu(
        architecture=first_known(named.architecture, uname.architecture),
        model=first_known(named.model, info.model),
        sockets=first_known(*(cpu.sockets for cpu in layout)),
        physical_cores=first_known(*(cpu.physical_cores for cpu in layout)),
        threads=None
        if differ
        else first_known(
            *(cpu.threads for cpu in layout),
            numa.threads_of(nodes),
            kernel.parse_nproc(texts["nproc"]),
            topology.threads,
        ),
        threads_per_core=first_known(*(cpu.threads_per_core for cpu in layout)),
        flags=flags.flags,
        flags_complete=flags.flags_complete,
        governor=first_known(kernel.one_governor(texts["governor"].split()), power.governor),
        max_mhz=first_known(power.max_mhz, named.max_mhz),
        limit_mhz=power.limit_mhz,
    )


def _flags(*sources: Cpu) -> Cpu:
    """A list that is there to its end tells more than one that is cut."""
    known = [cpu for cpu in sources if cpu.flags is not None]
    complete = [cpu for cpu in known if cpu.flags_complete]
    if complete:
        return complete[0] if agreed(*(cpu.flags for cpu in complete)) else Cpu()
    return known[0] if known else Cpu()


def _nodes(
    texts: Mapping[str, str], listed: lscpu.Lscpu, rows: tuple[lscpu.Row, ...]
) -> tuple[tuple[NumaNode, ...] | None, int | None]:
    """Every node, or at least how many there are."""
    by_numactl = numa.parse_numactl(texts["numactl"])
    by_numastat = numa.parse_numastat(texts["numastat"])
    said = [count for count in (numa.node_count(texts["numactl"]), listed.counted_nodes) if count]
    if said and agreed(*said) is None:
        return None, None
    sources = [nodes for nodes in (by_numactl, listed.nodes) if nodes]
    ids = {tuple(node.id for node in nodes) for nodes in sources}
    if len(ids) > 1:
        return None, agreed(*said)
    if not sources and said:
        return None, agreed(*said)
    known = sources[0] if sources else by_numastat
    if known is None:
        return None, None
    memory = (by_numastat or (), numa.parse_node_meminfo(texts["node-meminfo"]))
    given = [{node.id: node for node in nodes} for nodes in (*sources, *memory)]
    return tuple(_merged_node(node.id, given, rows) for node in known), None


def _merged_node(
    node: int, given: Sequence[Mapping[int, NumaNode]], rows: tuple[lscpu.Row, ...]
) -> NumaNode:
    found = [nodes[node] for nodes in given if node in nodes]
    cpus = agreed(*(one.cpus for one in found))
    listed = {row.cpu for row in rows if row.node == node}
    cores = lscpu.cores_of_node(rows, node) if listed and listed == set(cpus or ()) else None
    return NumaNode(
        id=node,
        memory_bytes=first_known(*(one.memory_bytes for one in found)),
        memory_free_bytes=first_known(*(one.memory_free_bytes for one in found)),
        cpus=cpus,
        physical_cores=first_known(cores, *(one.physical_cores for one in found)),
    )


def _memory(texts: Mapping[str, str], cpu: Cpu) -> Memory:
    """The kernel's numbers are exact, those of `free -h` rounded."""
    exact, rounded = memory.parse_meminfo(texts["meminfo"]), memory.parse_free(texts["free"])
    on_x86 = cpu.architecture in X86
    page = memory.PAGE_BYTES_ON_X86
    return Memory(
        total_bytes=first_known(exact.total_bytes, rounded.total_bytes),
        available_bytes=first_known(exact.available_bytes, rounded.available_bytes),
        free_bytes=first_known(exact.free_bytes, rounded.free_bytes),
        swap_total_bytes=first_known(exact.swap_total_bytes, rounded.swap_total_bytes),
        swap_free_bytes=first_known(exact.swap_free_bytes, rounded.swap_free_bytes),
        hugepages_bytes=exact.hugepages_bytes,
        thp=memory.parse_thp(texts["thp"]),
        largest_free_block_bytes=memory.largest_free_block(texts["buddyinfo"], page)
        if on_x86
        else None,
    )


def merged_gpus(
    sources: Iterable[tuple[Gpu, ...] | None], topology: Topology | None = None
) -> tuple[Gpu, ...] | None:
    """Cards by index, each field from the first source that knows it. A full name beats a cut one."""
    known = [gpus for gpus in sources if gpus is not None]
    cards: dict[int, list[Gpu]] = {}
    for gpu in (gpu for gpus in known for gpu in gpus):
        cards.setdefault(gpu.index, []).append(gpu)
    nodes = topology.nodes if topology else {}
    merged = [_merged_gpu(cards[index], nodes.get(index)) for index in sorted(cards)]
    return tuple(merged) if known else None


def _merged_gpu(found: list[Gpu], node: int | None) -> Gpu:
    names = [gpu.name for gpu in found if gpu.name]
    slices = (gpu.mig_slices_bytes for gpu in found if gpu.mig_slices_bytes)
    fields = {
        field: first_known(*(getattr(gpu, field) for gpu in found)) for field in Gpu.model_fields
    }
    return Gpu.model_validate(
        fields
        | {
            "name": next((name for name in names if not name.endswith(CUT)), fields["name"]),
            "mig_slices_bytes": next(slices, ()),
            "numa_node": first_known(fields["numa_node"], node),
        }
    )


def _limits(texts: Mapping[str, str], listed: lscpu.Lscpu, uname: kernel.Uname) -> Limits:
    group = {name: texts[name] for name in cgroup.FILES if texts[name]}
    daemon = docker.parse_cgroup_version(texts["docker-info"])
    version = 2 if "memory.max" in group else 1 if "memory.limit_in_bytes" in group else None
    wsl = "microsoft" in (uname.kernel or "").lower()
    return cgroup.parse_groups([group]).model_copy(
        update={
            "cgroup_version": first_known(version, {"1": 1, "2": 2}.get(daemon or "")),
            "cpuset": kernel.parse_status(texts["status"]).cpuset,
            "virtual": "wsl" if wsl else listed.limits.virtual,
        }
    )


def _docker(texts: Mapping[str, str]) -> Docker:
    return docker.merged(
        docker.parse_info(texts["docker-info"]), docker.parse_version(texts["docker-version"])
    )

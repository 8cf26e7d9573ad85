"""Hosts to judge profiles by: composed, with numbers as such machines report them.

Memory is what Linux shows of the modules in the slots: some GiB less. Cards have the MiB that
nvidia-smi prints. Each has room on its disk and tuned settings unless its name says otherwise.
"""

from orchestrator.core.facts import Cpu, Disk, Docker, Gpu, HostFacts, Limits, Memory, NumaNode

GIB = 1 << 30
MIB = 1 << 20
TB = 10**12
PERFORMANCE = "performance"

AVX2 = frozenset({"fpu", "sse4_2", "avx", "f16c", "fma", "bmi2", "avx2"})
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni"}
AVX512_BF16 = AVX512 | {"avx512_bf16", "avx512vbmi"}
AMX = AVX512_BF16 | {"amx_tile", "amx_int8", "amx_bf16"}
MIG_CAPABLE = {"NVIDIA H200", "NVIDIA A30"}

DOCKER = Docker(
    answers=True,
    version="28.3.3",
    compose_version="2.39.1",
    buildx_version="0.26.1",
    nvidia_runtime=False,
    cdi=False,
    cgroup_driver="systemd",
    rootless=False,
)
GPU_DOCKER = DOCKER.model_copy(
    update={"nvidia_runtime": True, "cdi": True, "toolkit_version": "1.17.8"}
)


def _cpu(
    model: str,
    flags: frozenset[str],
    shape: tuple[int, int, int],
    governor: str | None = PERFORMANCE,
) -> Cpu:
    """`shape`: sockets, physical cores over all of them, threads of each core."""
    sockets, cores, smt = shape
    return Cpu(
        architecture="x86_64",
        model=model,
        sockets=sockets,
        physical_cores=cores,
        threads=cores * smt,
        threads_per_core=smt,
        flags=flags,
        governor=governor,
        max_mhz=3400.0 if governor else None,
        limit_mhz=3400.0 if governor else None,
    )


def _nodes(count: int, each: int, free: int, *, cores: int, smt: int = 2) -> tuple[NumaNode, ...]:
    """Nodes of one size. Linux numbers first one thread of every core, then the siblings."""
    share = cores // count
    return tuple(
        NumaNode(
            id=node,
            memory_bytes=each,
            memory_free_bytes=free,
            cpus=tuple(
                first + node * share + core
                for first in range(0, cores * smt, cores)
                for core in range(share)
            ),
            physical_cores=share,
        )
        for node in range(count)
    )


def _memory(total: int, available: int) -> Memory:
    return Memory(
        total_bytes=total,
        available_bytes=available,
        free_bytes=available - 2 * GIB,
        swap_total_bytes=0,
        swap_free_bytes=0,
        hugepages_bytes=0,
        thp="madvise",
        largest_free_block_bytes=4 * MIB,
    )


def _card(name: str, capability: tuple[int, int], mib: int, free_mib: int) -> Gpu:
    """The first card, on the first node; `mib` and `free_mib` as nvidia-smi prints them."""
    return Gpu(
        index=0,
        name=name,
        compute_capability=capability,
        memory_bytes=mib * MIB,
        memory_used_bytes=1 * MIB,
        memory_free_bytes=free_mib * MIB,
        mig=False if name in MIG_CAPABLE else None,
        persistence=True,
        numa_node=0,
    )


def _rtx4090(index: int = 0) -> Gpu:
    card = _card("NVIDIA GeForce RTX 4090", (8, 9), 24564, 24080)
    return card.model_copy(update={"index": index})


def _host(
    cpu: Cpu,
    memory: Memory,
    nodes: tuple[NumaNode, ...],
    *gpus: Gpu,
    driver: str | None = "580.95.05",
    cuda: str | None = "13.0",
) -> HostFacts:
    return HostFacts(
        system="Linux",
        kernel="6.8.0-71-generic",
        cpu=cpu,
        memory=memory,
        nodes=nodes,
        numa_balancing=False,
        gpus=gpus,
        driver_version=driver if gpus else None,
        driver_cuda=cuda if gpus else None,
        disk=Disk(
            path="/data/weights",
            free_bytes=2 * TB,
            total_bytes=4 * TB,
            filesystem="ext4",
            kind="ssd",
            read_bytes_per_s=3.0e9,
        ),
        limits=Limits(
            cgroup_version=2,
            unlimited=frozenset({"memory", "cpus"}),
            memlock_bytes=-1,
            container="",
            virtual="",
        ),
        docker=GPU_DOCKER if gpus else DOCKER,
        busy_ports=frozenset(),
        uid=1000,
        gid=1000,
    )


def rtx4090_480gb_two_sockets() -> HostFacts:
    """Two Xeon Gold 6430 with ten modules of 48 GB: upstream's own R1 host (V3-success.md, case 2)."""
    return _host(
        _cpu("Intel(R) Xeon(R) Gold 6430", AMX, (2, 64, 2)),
        _memory(472 * GIB, 466 * GIB),
        _nodes(2, 236 * GIB, 233 * GIB, cores=64),
        _rtx4090(),
    )


def rtx4090_256gb() -> HostFacts:
    return _host(
        _cpu("AMD Ryzen Threadripper PRO 7965WX 24-Cores", AVX512_BF16, (1, 24, 2)),
        _memory(251 * GIB, 246 * GIB),
        _nodes(1, 251 * GIB, 244 * GIB, cores=24),
        _rtx4090(),
    )


def rtx3090_512gb() -> HostFacts:
    return _host(
        _cpu("AMD EPYC 7532 32-Core Processor", AVX2, (1, 32, 2)),
        _memory(503 * GIB, 497 * GIB),
        _nodes(1, 503 * GIB, 495 * GIB, cores=32),
        _card("NVIDIA GeForce RTX 3090", (8, 6), 24576, 24239),
    )


def no_amx_epyc() -> HostFacts:
    """Zen 3: AVX2, and neither AVX-512 nor AMX."""
    return _host(
        _cpu("AMD EPYC 7763 64-Core Processor", AVX2, (1, 64, 2)),
        _memory(503 * GIB, 497 * GIB),
        _nodes(1, 503 * GIB, 495 * GIB, cores=64),
        _rtx4090(),
    )


def amx_sapphire_rapids() -> HostFacts:
    return _host(
        _cpu("Intel(R) Xeon(R) Platinum 8480+", AMX, (2, 112, 2)),
        _memory(1007 * GIB, 996 * GIB),
        _nodes(2, 503 * GIB, 496 * GIB, cores=112),
        _card("NVIDIA L40S", (8, 9), 46068, 45596),
    )


def four_nodes_128gb_each() -> HostFacts:
    """Two EPYC 7452, each set to two nodes (NPS2)."""
    return _host(
        _cpu("AMD EPYC 7452 32-Core Processor", AVX2, (2, 64, 2)),
        _memory(503 * GIB, 494 * GIB),
        _nodes(4, 125 * GIB, 123 * GIB, cores=64),
        _rtx4090(),
    )


def two_cards_24gb() -> HostFacts:
    return _host(
        _cpu("AMD EPYC 7543 32-Core Processor", AVX2, (1, 32, 2)),
        _memory(503 * GIB, 497 * GIB),
        _nodes(1, 503 * GIB, 495 * GIB, cores=32),
        _rtx4090(0),
        _rtx4090(1),
    )


def container_64gb_limit_on_512gb() -> HostFacts:
    """A rented container: /proc shows the whole machine, the cgroup gives a part; no Docker inside."""
    whole = _host(
        _cpu(
            "Intel(R) Xeon(R) Platinum 8352V CPU @ 2.10GHz",
            AVX512,
            (2, 72, 2),
            None,
        ),
        _memory(503 * GIB, 471 * GIB),
        _nodes(2, 251 * GIB, 230 * GIB, cores=72),
        _rtx4090(),
    )
    return whole.model_copy(
        update={
            "limits": Limits(
                cgroup_version=2,
                memory_bytes=64 * GIB,
                cpus=16.0,
                memlock_bytes=8 * MIB,
                container="docker",
                virtual="",
            ),
            "docker": Docker(answers=False),
            "uid": 0,
            "gid": 0,
        }
    )


def no_gpu_small() -> HostFacts:
    """A small virtual machine, whose CPU has AVX-512 and no AMX."""
    small = _host(
        _cpu("Intel(R) Xeon(R) Processor", AVX512, (1, 2, 1), None),
        _memory(int(23.5 * GIB), 22 * GIB),
        _nodes(1, int(23.5 * GIB), 20 * GIB, cores=2, smt=1),
    )
    return small.model_copy(
        update={"limits": small.limits.model_copy(update={"virtual": "kvm"})},
    )


def wsl2_4090() -> HostFacts:
    """Windows with 64 GB, of which WSL2 takes half unless told otherwise."""
    inside = _host(
        _cpu("13th Gen Intel(R) Core(TM) i9-13900K", AVX2, (1, 16, 2), None),
        _memory(31 * GIB, 30 * GIB),
        _nodes(1, 31 * GIB, 29 * GIB, cores=16),
        _card("NVIDIA GeForce RTX 4090", (8, 9), 24564, 21711),
        driver="581.57",
        cuda="13.0",
    )
    return inside.model_copy(
        update={
            "kernel": "5.15.167.4-microsoft-standard-WSL2",
            "numa_balancing": None,
            "memory": inside.memory.model_copy(
                update={"swap_total_bytes": 8 * GIB, "swap_free_bytes": 8 * GIB}
            ),
            "limits": inside.limits.model_copy(
                update={"virtual": "wsl", "memlock_bytes": 64 * MIB}
            ),
        }
    )


def h200() -> HostFacts:
    return _host(
        _cpu("INTEL(R) XEON(R) PLATINUM 8558", AMX, (2, 96, 2)),
        _memory(2015 * GIB, 1993 * GIB),
        _nodes(2, 1007 * GIB, 995 * GIB, cores=96),
        _card("NVIDIA H200", (9, 0), 143771, 143154),
    )


def aarch64_grace() -> HostFacts:
    """A GH200: one node with CPUs; the card's memory is node 1; seven more are empty (for MIG)."""
    memory_only = (
        NumaNode(id=1, memory_bytes=96 * GIB, memory_free_bytes=95 * GIB, cpus=()),
        *(NumaNode(id=node, memory_bytes=0, memory_free_bytes=0, cpus=()) for node in range(2, 9)),
    )
    cpu = Cpu(
        architecture="aarch64",
        model="Neoverse-V2",
        sockets=1,
        physical_cores=72,
        threads=72,
        threads_per_core=1,
        flags=frozenset({"fp", "asimd", "sve", "sve2", "bf16", "i8mm"}),
        governor="performance",
        max_mhz=3447.0,
        limit_mhz=3447.0,
    )
    return _host(
        cpu,
        _memory(574 * GIB, 563 * GIB),
        (*_nodes(1, 478 * GIB, 466 * GIB, cores=72, smt=1), *memory_only),
        _card("NVIDIA GH200 480GB", (9, 0), 97871, 96768),
    )


def mig_a30() -> HostFacts:
    """One A30, cut into four slices of 6 GB."""
    host = _host(
        _cpu("AMD EPYC 7313 16-Core Processor", AVX2, (2, 32, 2)),
        _memory(503 * GIB, 496 * GIB),
        _nodes(2, 251 * GIB, 247 * GIB, cores=32),
        _card("NVIDIA A30", (8, 0), 24576, 24060),
    )
    cut = {"mig": True, "mig_slices_bytes": (5952 * MIB,) * 4}
    return host.model_copy(
        update={"gpus": tuple(g.model_copy(update=cut) for g in host.gpus or ())}
    )


def old_driver_v100() -> HostFacts:
    return _host(
        _cpu("Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz", AVX512, (2, 40, 2)),
        _memory(754 * GIB, 745 * GIB),
        _nodes(2, 377 * GIB, 371 * GIB, cores=40),
        _card("Tesla V100-SXM2-32GB", (7, 0), 32510, 32507),
        driver="470.57.02",
        cuda="11.4",
    )


ALL = (
    rtx4090_480gb_two_sockets,
    rtx4090_256gb,
    rtx3090_512gb,
    no_amx_epyc,
    amx_sapphire_rapids,
    four_nodes_128gb_each,
    two_cards_24gb,
    container_64gb_limit_on_512gb,
    no_gpu_small,
    wsl2_4090,
    h200,
    aarch64_grace,
    mig_a30,
    old_driver_v100,
)

"""What is true of a host. `None` means "could not tell", never "zero" and never "no".

Everything is a frozen model that survives JSON, so that facts can be saved on one host and judged
on another. Bytes are bytes: a tool's MiB, kB or "125Gi" is converted where it is parsed.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

X86 = frozenset({"x86_64", "amd64", "i386", "i486", "i586", "i686"})


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Gpu(_Fact):
    """One NVIDIA card. `mig_slices_bytes`: sizes of its slices where MIG cuts it; else empty.

    `ecc_errors`: of memory, not corrected, since its driver was loaded; None without ECC.
    """

    index: int
    name: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    mig: bool | None = None
    mig_slices_bytes: tuple[int, ...] = ()
    persistence: bool | None = None
    ecc_errors: int | None = None
    numa_node: int | None = None


class NumaNode(_Fact):
    """One node of memory, by the number the kernel gives it. `cpus` is empty on memory-only nodes."""

    id: int
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    cpus: tuple[int, ...] | None = None
    physical_cores: int | None = None


class Cpu(_Fact):
    """`flags`: as /proc/cpuinfo spells them. `limit_mhz`: the frequency it is held to, `max_mhz`: could do.

    `flags_complete`: False where their list was cut, so that what it lacks is unknown.
    `governor`: where CPUs differ, all of theirs with commas between.
    """

    architecture: str | None = None
    model: str | None = None
    sockets: int | None = None
    physical_cores: int | None = None
    threads: int | None = None
    threads_per_core: int | None = None
    flags: frozenset[str] | None = None
    flags_complete: bool = True
    governor: str | None = None
    max_mhz: float | None = None
    limit_mhz: float | None = None

    def has(self, flag: str) -> bool | None:
        if self.flags is None:
            return None
        return True if flag in self.flags else (False if self.flags_complete else None)

    @property
    def avx2(self) -> bool | None:
        return self._has_on_x86("avx2")

    @property
    def avx512(self) -> bool | None:
        return self._has_on_x86("avx512f")

    @property
    def amx(self) -> bool | None:
        return self._has_on_x86("amx_tile")

    def _has_on_x86(self, flag: str) -> bool | None:
        if self.architecture is not None and self.architecture not in X86:
            return False
        return self.has(flag)


class Memory(_Fact):
    """`available_bytes`: what programs could take now. `hugepages_bytes`: reserved, gone for others.

    `largest_free_block_bytes`: of /proc/buddyinfo; small where memory is fragmented.
    """

    total_bytes: int | None = None
    available_bytes: int | None = None
    free_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    hugepages_bytes: int | None = None
    thp: Literal["always", "madvise", "never"] | None = None
    largest_free_block_bytes: int | None = None


class Limits(_Fact):
    """What the kernel grants this process, which may be less than the machine has.

    `memory_bytes`, `cpus`: None where nothing limits them or nothing is known; `unlimited` tells the
    two apart: it names those that surely have no limit. `memory_room_bytes`: what the tightest of
    our cgroups still grants, its page cache counted as free. `memlock_bytes`: -1 is unlimited. `container`, `virtual`: the kind, "" none.
    """

    cgroup_version: Literal[1, 2] | None = None
    memory_bytes: int | None = None
    memory_room_bytes: int | None = None
    cpus: float | None = None
    unlimited: frozenset[Literal["memory", "cpus"]] = frozenset()
    cpuset: tuple[int, ...] | None = None
    memlock_bytes: int | None = None
    container: str | None = None
    virtual: str | None = None


class Disk(_Fact):
    """The file system that is to hold the weights."""

    path: str
    free_bytes: int | None = None
    total_bytes: int | None = None
    filesystem: str | None = None
    kind: Literal["ssd", "hdd", "network", "memory"] | None = None
    read_bytes_per_s: float | None = None


class Docker(_Fact):
    """`answers`: can this user talk to the daemon. `nvidia_runtime`, `cdi`: ways to give a GPU.

    `version`: the daemon's, or the client's where no daemon answers; None beside `answers=False`
    means that there is no Docker here.
    """

    answers: bool | None = None
    version: str | None = None
    compose_version: str | None = None
    buildx_version: str | None = None
    nvidia_runtime: bool | None = None
    cdi: bool | None = None
    toolkit_version: str | None = None
    cgroup_driver: str | None = None
    rootless: bool | None = None


class Reach(_Fact):
    """Does the host reach these: None where nobody asked. `clock_ahead_s`: against a server's date."""

    image_registry: bool | None = None
    huggingface: bool | None = None
    modelscope: bool | None = None
    python_index: bool | None = None
    clock_ahead_s: float | None = None


class HostFacts(_Fact):
    """`gpus`: () where there surely is none. `nodes`: None where the layout could not be read.

    `lost_gpus`: how many their driver knows and can't reach any more.
    `counted_nodes`: how many nodes there are, where no more than that is known.
    `disks`: what `disk` is chosen from, each by its mount point, where a text lists several.
    `busy_ports`: of the ports asked about, those that a program other than ours listens on; None
    where nobody asked.
    `uid`, `gid`: of whoever runs this; they own the stack's files.
    """

    system: str | None = None
    kernel: str | None = None
    cpu: Cpu = Cpu()
    memory: Memory = Memory()
    nodes: tuple[NumaNode, ...] | None = None
    counted_nodes: int | None = None
    numa_balancing: bool | None = None
    gpus: tuple[Gpu, ...] | None = None
    lost_gpus: int = 0
    driver_version: str | None = None
    driver_cuda: str | None = None
    disk: Disk | None = None
    disks: tuple[Disk, ...] = ()
    limits: Limits = Limits()
    docker: Docker = Docker()
    reach: Reach = Reach()
    busy_ports: frozenset[int] | None = None
    uid: int = 0
    gid: int = 0

    @property
    def node_count(self) -> int | None:
        return self.counted_nodes if self.nodes is None else len(self.nodes)

    @property
    def usable_memory_bytes(self) -> int | None:
        """What the host has available, or what our cgroups still grant of it where that is less."""
        available = self.memory.available_bytes
        if available is None:
            return None
        granted = (self.limits.memory_room_bytes, self.limits.memory_bytes)
        return min([available, *(size for size in granted if size is not None)])

    @property
    def memory_nodes(self) -> tuple[NumaNode, ...] | None:
        """The nodes that can hold weights and compute: those with CPUs of their own."""
        if self.nodes is None:
            return None
        return tuple(node for node in self.nodes if node.cpus != () and node.memory_bytes != 0)

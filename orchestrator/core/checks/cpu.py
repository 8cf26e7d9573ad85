"""Checks of the processor, whatever the profile."""

from orchestrator.core.checks.check import Check, Remedy, counted, not_shown
from orchestrator.core.checks.finding import Finding, Said
from orchestrator.core.facts import HostFacts

HELD_BACK = 0.9  # of the highest frequency: what lies between is the firmware's rounding

ARCHITECTURE = Check(
    name="architecture",
    why=Said(
        "the images and the engines' CPU kernels are built for x86_64: on any other CPU "
        "the containers do not start",
        "镜像和推理引擎的 CPU 内核只为 x86_64 编译，在其他架构的 CPU 上容器无法启动",
    ),
    ask="uname -m",
    of_host=True,
)
AVX2 = Check(
    name="avx2",
    why=Said(
        "every engine here is built for AVX2: without it, it ends with `Illegal instruction` "
        "(exit 132)",
        "这里的所有引擎都需要 AVX2：没有它，引擎会以 Illegal instruction 退出（退出码 132）",
    ),
    ask="grep -o -m 1 -w avx2 /proc/cpuinfo",
    of_host=True,
)
GOVERNOR = Check(
    name="governor",
    why=Said(
        "an energy-saving governor clocks cores down between two tokens, and each token "
        "waits for them to speed up again",
        "节能调频策略会在两个 token 之间降低核心频率，每个 token 都要等核心重新升频，生成变慢",
    ),
    ask="cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
)
FREQUENCY = Check(
    name="frequency",
    why=Said(
        "the CPU is held below what it can do, and prompts are read slower in proportion",
        "CPU 被限制在最高频率以下，读取提示词（prefill）的速度会按比例下降",
    ),
    ask="cpupower frequency-info",
)
CPU_LIMIT = Check(
    name="cpu-limit",
    why=Said(
        "the cgroup grants less CPU time than there are cores; engine threads beyond the grant "
        "are paused by the kernel, and all the others wait for the slowest",
        "cgroup 给的 CPU 时间少于物理核心数；超出配额的引擎线程会被内核暂停，其余线程都要等最慢的那个",
    ),
    ask="cat /sys/fs/cgroup/cpu.max",
)


def architecture(facts: HostFacts) -> Finding:
    found, needed = facts.cpu.architecture, "x86_64"
    if found is None:
        return ARCHITECTURE.unknown(needed)
    if found in {"x86_64", "amd64"}:
        return ARCHITECTURE.ok(found, needed)
    other = Said(
        "take a host with an Intel or AMD CPU; ARM hosts (GH200, GB10, Graviton) can't run this",
        "请换用 Intel 或 AMD CPU 的主机；ARM 主机（GH200、GB10、Graviton）无法运行",
    )
    return ARCHITECTURE.block(found, needed, Remedy(next_step=other))


def avx2(facts: HostFacts) -> Finding:
    has, needed = facts.cpu.avx2, "avx2"
    if has is None:
        return AVX2.unknown(needed)
    if has:
        return AVX2.ok("avx2", needed)
    pass_through = Said(
        "in a virtual machine, give it the host's own CPU type (QEMU: -cpu host); otherwise take "
        "an Intel CPU from Haswell on, or an AMD CPU from Excavator on",
        "在虚拟机里请直通宿主机的 CPU 型号（QEMU：-cpu host）；"
        "否则请换用 Intel Haswell、AMD Excavator 或更新的 CPU",
    )
    return AVX2.block(facts.cpu.model or "no avx2", needed, Remedy(next_step=pass_through))


def governor(facts: HostFacts) -> Finding:
    found, needed = facts.cpu.governor, "performance"
    if found is None:
        if facts.limits.virtual or facts.limits.container:
            return GOVERNOR.ok(not_shown(facts))
        return GOVERNOR.unknown(needed)
    if found == needed:
        return GOVERNOR.ok(found, needed)
    remedy = Remedy(
        "cpupower frequency-set -g performance",
        f"cpupower frequency-set -g {found}",
        Said(
            "it lasts until the next boot; cpupower is in linux-cpupower (Debian) or "
            "linux-tools-generic (Ubuntu)",
            "重启后失效；cpupower 在软件包 linux-cpupower（Debian）或 linux-tools-generic（Ubuntu）里",
        ),
    )
    return GOVERNOR.warn(found, needed, remedy)


def frequency(facts: HostFacts) -> Finding:
    limit, most = facts.cpu.limit_mhz, facts.cpu.max_mhz
    if limit is None or most is None:
        if facts.limits.virtual or facts.limits.container:
            return FREQUENCY.ok(not_shown(facts))
        return FREQUENCY.unknown("max")
    found, needed = f"{limit:.0f} MHz", f"{most:.0f} MHz"
    if limit >= HELD_BACK * most:
        return FREQUENCY.ok(found, needed)
    remedy = Remedy(
        f"cpupower frequency-set -u {most:.0f}MHz", f"cpupower frequency-set -u {limit:.0f}MHz"
    )
    return FREQUENCY.warn(found, needed, remedy)


def cpu_limit(facts: HostFacts) -> Finding:
    granted, cores = facts.limits.cpus, facts.cpu.physical_cores
    if cores is None:
        return CPU_LIMIT.unknown("max")
    if granted is None:
        asked = "cpus" in facts.limits.unlimited
        return CPU_LIMIT.ok("max", counted(cores, "CPU")) if asked else CPU_LIMIT.unknown("max")
    found, needed = counted(granted, "CPU"), counted(cores, "CPU")
    if granted >= cores:
        return CPU_LIMIT.ok(found, needed)
    fewer = Said(
        f"raise the limit of this container or virtual machine, or keep to {max(1, int(granted))} "
        "threads",
        f"请提高容器或虚拟机的 CPU 限额，或只用 {max(1, int(granted))} 个线程",
    )
    threads = max(1, int(granted))
    remedy = Remedy(f"export ORCH_THREADS={threads}", "unset ORCH_THREADS", fewer)
    return CPU_LIMIT.warn(found, needed, remedy)

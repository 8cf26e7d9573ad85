"""The commands whose outputs tell about a host, by the name of the file that each is saved in.

A file may be called lscpu, lscpu.txt, .json, .csv or .log.
"""

from collections.abc import Mapping

from orchestrator.core.probes import cgroup

QUERY = "nvidia-smi --query-gpu=name,memory.total,memory.free,compute_cap --format=csv"
COMMANDS: Mapping[str, str] = {
    "lscpu": "lscpu",
    "lscpu-e": "lscpu -e",
    "cpuinfo": "cat /proc/cpuinfo",
    "cpupower": "cpupower frequency-info",
    "nproc": "nproc",
    "uname": "uname -a",
    "status": "cat /proc/self/status",
    "governor": "cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "numactl": "numactl --hardware",
    "numastat": "numastat -m",
    "node-meminfo": "cat /sys/devices/system/node/node*/meminfo",
    "free": "free -h",
    "meminfo": "cat /proc/meminfo",
    "buddyinfo": "cat /proc/buddyinfo",
    "thp": "cat /sys/kernel/mm/transparent_hugepage/enabled",
    "numa-balancing": "cat /proc/sys/kernel/numa_balancing",
    "df": "df -hT",
    "nvidia-smi": "nvidia-smi",
    "nvidia-smi-L": "nvidia-smi -L",
    "nvidia-smi-query": QUERY,
    "topo": "nvidia-smi topo -m",
    "docker-info": "docker info --format '{{json .}}'",
    "docker-version": "docker version --format '{{json .}}'",
    **{name: f"cat /sys/fs/cgroup/{name}" for name in ("memory.max", "memory.current")},
    **{name: f"cat /sys/fs/cgroup/{name}" for name in ("memory.stat", "cpu.max")},
    **{name: f"cat /sys/fs/cgroup/memory/{name}" for name in cgroup.LEGACY_MEMORY_FILES},
    **{name: f"cat /sys/fs/cgroup/cpu/{name}" for name in cgroup.LEGACY_CPU_FILES},
}

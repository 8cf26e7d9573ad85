"""What is still missing of a host that is judged by its outputs: which command, into which file."""

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.core.checks.finding import Finding, Said, Severity
from orchestrator.core.probes.commands import COMMANDS

# check -> the name of the file that answers it. The other checks have to be made on the host itself.
FILES = {
    "operating-system": "uname",
    "architecture": "lscpu",
    "avx2": "lscpu",
    "wsl": "uname",
    "docker": "docker-info",
    "compose": "docker-info",
    "buildx": "docker-info",
    "sys-nice": "docker-info",
    "governor": "governor",
    "frequency": "cpupower",
    "cpu-limit": "cpu.max",
    "cgroup-limit": "memory.max",
    "memory-only-nodes": "lscpu",
    "node-balance": "node-meminfo",
    "hugepages": "meminfo",
    "thp": "thp",
    "fragmentation": "buddyinfo",
    "swap": "meminfo",
    "numa-balancing": "numa-balancing",
    "gpu-driver": "nvidia-smi",
    "gpu-generation": "nvidia-smi-query",
    "gpu-lost": "nvidia-smi",
    "ecc": "nvidia-smi",
    "mig": "nvidia-smi",
    "persistence": "nvidia-smi",
    "gpu-after-reload": "docker-info",
    "disk": "df",
    "memory": "meminfo",
    "memory-nodes": "node-meminfo",
    "gpu-count": "nvidia-smi",
    "toolkit": "docker-info",
    "vram": "nvidia-smi",
    "long-output": "nvidia-smi",
    "several-gpus": "nvidia-smi",
    "compute-capability": "nvidia-smi-query",
    "driver": "nvidia-smi",
    "cpu-instructions": "lscpu",
    "threads": "lscpu",
    "memory-policy": "lscpu",
}


def naming_files(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """With the file that the output is to go to, where that is how a check learns more."""
    return tuple(
        replace(found, next_step=_into(FILES[found.check]))
        if found.severity is Severity.UNKNOWN and found.check in FILES
        else found
        for found in findings
    )


def _into(name: str) -> Said:
    command = COMMANDS[name]
    return Said(
        f"put what this prints there into the folder's {name}.txt: {command}",
        f"在该机器上运行下面的命令，把输出存为目录里的 {name}.txt：{command}",
    )

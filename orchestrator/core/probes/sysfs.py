"""The folder of each CPU in /sys/devices/system/cpu."""

from collections.abc import Mapping
from typing import NamedTuple

from orchestrator.core.facts import Cpu
from orchestrator.core.probes.kernel import one_governor
from orchestrator.core.probes.text import cpu_list, whole


class CpuFiles(NamedTuple):
    """Texts of one CPU's files, "" where there is none. Frequencies are in kHz."""

    package: str = ""
    siblings: str = ""
    governor: str = ""
    max_khz: str = ""
    limit_khz: str = ""


def parse_cpus(online: str, files: Mapping[int, CpuFiles]) -> Cpu:
    """The layout of the CPUs that are online; one field is unknown where any CPU lacks its file."""
    cpus = cpu_list(online)
    if not cpus:
        return Cpu()
    own = [files.get(cpu, CpuFiles()) for cpu in cpus]
    packages = {whole(one.package.strip()) for one in own}
    cores = {one.siblings.strip() for one in own}
    core_count = None if "" in cores else len(cores)
    return Cpu(
        sockets=None if None in packages else len(packages),
        physical_cores=core_count,
        threads=len(cpus),
        threads_per_core=_per_core(len(cpus), core_count),
        governor=one_governor(one.governor for one in own),
        **_frequencies(own),
    )


def _per_core(threads: int, cores: int | None) -> int | None:
    return threads // cores if cores and threads % cores == 0 else None


def _frequencies(own: list[CpuFiles]) -> dict[str, float]:
    """Of the CPU that is held back the most: cores of one chip may be of several kinds."""
    known = [(whole(one.limit_khz.strip()), whole(one.max_khz.strip())) for one in own]
    pairs = [(limit, most) for limit, most in known if limit and most]
    if not pairs:
        return {}
    limit, most = min(pairs, key=lambda pair: pair[0] / pair[1])
    return {"limit_mhz": limit / 1000, "max_mhz": most / 1000}

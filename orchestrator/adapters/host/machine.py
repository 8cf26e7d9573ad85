"""What /proc and /sys tell. `root`: where they lie."""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from orchestrator.core.facts import Cpu, HostFacts, Limits, NumaNode
from orchestrator.core.probes import cgroup, housing, kernel, memory, numa
from orchestrator.core.probes.sysfs import CpuFiles, parse_cpus
from orchestrator.core.probes.text import first_known

HERE = Path("/")
FIRMWARE = ("sys_vendor", "product_name")
# Version 1 keeps a tree for each controller; some systems name the CPU's tree after two of them.
LEGACY_TREES = {"memory": ("memory",), "cpu": ("cpu", "cpu,cpuacct")}


def read_machine(root: Path = HERE, architecture: str = "") -> HostFacts:
    release = text(root / "proc/sys/kernel/osrelease").strip() or None
    cpu = _cpu(root, architecture or os.uname().machine)
    makers = [text(root / "sys/class/dmi/id" / name) for name in FIRMWARE]
    virtual = kernel.hypervisor(release, cpu, makers, text(root / "sys/hypervisor/type"))
    sized = memory.parse_meminfo(text(root / "proc/meminfo"))
    blocks = memory.largest_free_block(text(root / "proc/buddyinfo"), os.sysconf("SC_PAGE_SIZE"))
    thp = memory.parse_thp(text(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return HostFacts(
        system=text(root / "proc/sys/kernel/ostype").strip() or None,
        kernel=release,
        cpu=cpu,
        memory=sized.model_copy(update={"thp": thp, "largest_free_block_bytes": blocks}),
        nodes=_nodes(root / "sys/devices/system"),
        numa_balancing=kernel.parse_switch(text(root / "proc/sys/kernel/numa_balancing")),
        limits=_limits(root, cpu).model_copy(update={"virtual": virtual}),
    )


def text(path: Path) -> str:
    """What is in it; "" where it is not there or not for us."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


def _numbered(folder: Path, word: str) -> Iterator[tuple[int, Path]]:
    for path in folder.glob(f"{word}[0-9]*"):
        if found := re.fullmatch(rf"{word}(\d{{1,5}})", path.name):
            yield int(found[1]), path


def _cpu(root: Path, architecture: str) -> Cpu:
    folder = root / "sys/devices/system/cpu"
    files = {
        number: CpuFiles(
            package=text(path / "topology/physical_package_id"),
            siblings=text(path / "topology/thread_siblings_list"),
            governor=text(path / "cpufreq/scaling_governor"),
            max_khz=text(path / "cpufreq/cpuinfo_max_freq"),
            limit_khz=text(path / "cpufreq/scaling_max_freq"),
        )
        for number, path in _numbered(folder, "cpu")
    }
    laid_out = parse_cpus(text(folder / "online"), files)
    info = kernel.parse_cpuinfo(text(root / "proc/cpuinfo"))
    fields = {
        name: first_known(getattr(laid_out, name), getattr(info, name))
        for name in Cpu.model_fields
        if name != "flags_complete"
    }
    return Cpu.model_validate(
        fields | {"architecture": architecture, "flags_complete": info.flags_complete}
    )


def _nodes(system: Path) -> tuple[NumaNode, ...] | None:
    """None where the kernel knows no nodes at all."""
    siblings = {
        number: text(path / "topology/thread_siblings_list").strip()
        for number, path in _numbered(system / "cpu", "cpu")
    }
    cores = {cpu: core for cpu, core in siblings.items() if core}
    found = [
        numa.parse_node(number, text(path / "meminfo"), text(path / "cpulist"), cores)
        for number, path in sorted(_numbered(system / "node", "node"))
    ]
    return tuple(found) or None


def _limits(root: Path, cpu: Cpu) -> Limits:
    groups, version = _groups(root)
    allowed = kernel.parse_status(text(root / "proc/self/status")).cpuset
    is_all = allowed is not None and len(allowed) == cpu.threads
    present = {
        mark: text(root / mark)
        for mark in (*housing.MARKS, housing.NAMED_IN, housing.GROUPS, housing.MOUNTS)
        if (root / mark).exists()
    }
    limits = cgroup.parse_groups(groups)
    # Here all groups were read: the topmost has no such files, as it has no limits.
    granted = {"memory": limits.memory_bytes, "cpus": limits.cpus}
    free = [name for name, limit in granted.items() if limit is None and version is not None]
    return limits.model_copy(
        update={
            "cgroup_version": version,
            "unlimited": frozenset(free),
            "cpuset": None if is_all else allowed,
            "container": housing.container_of(present),
        }
    )


def _groups(root: Path) -> tuple[list[dict[str, str]], int | None]:
    """The files of the groups that this process is in, and of those around them."""
    own, tree = text(root / "proc/self/cgroup"), root / "sys/fs/cgroup"
    if (tree / "cgroup.controllers").exists():
        folders = _around(tree, cgroup.group_of(own, ""))
        return [_files(folder) for folder in folders], 2
    groups = [
        _files(folder)
        for controller, names in LEGACY_TREES.items()
        for name in names
        if (tree / name).is_dir()
        for folder in _around(tree / name, cgroup.group_of(own, controller))
    ]
    return groups, 1 if groups else None


def _around(tree: Path, group: str | None) -> list[Path]:
    """The group's folder and all above it. In a container the tree may begin at the group itself."""
    inside = PurePosixPath(group or "/").relative_to("/")
    if ".." in inside.parts or not (tree / inside).is_dir():
        return [tree]
    return [tree / inside, *(tree / above for above in inside.parents)] if inside.parts else [tree]


def _files(folder: Path) -> dict[str, str]:
    return {name: text(folder / name) for name in cgroup.FILES if (folder / name).is_file()}

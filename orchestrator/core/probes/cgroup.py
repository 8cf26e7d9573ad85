"""Control groups, versions 1 and 2: what the kernel grants this process."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from orchestrator.core.facts import Limits
from orchestrator.core.probes.text import lines, whole

# Version 1 writes "no limit" as the largest number of pages: just below 2^63 bytes.
UNLIMITED_BYTES = 1 << 62
# Files of one group. In version 2 each name tells its controller; version 1 has a tree for each.
LEGACY_MEMORY_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes")
LEGACY_CPU_FILES = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
MEMORY_FILES = ("memory.max", "memory.current", *LEGACY_MEMORY_FILES, "memory.stat")
CPU_FILES = ("cpu.max", *LEGACY_CPU_FILES)
GROUP = re.compile(r"\d+:([^:]*):(/.*)")
STAT = re.compile(r"(\w+) (\d{1,19})", re.ASCII)
CPU_MAX = re.compile(r"(\d{1,12})\s+(\d{1,12})\s*", re.ASCII)
AMOUNT = re.compile(r"\s*(?:max|-?\d{1,19})(?:\s+\d{1,12})?\s*", re.ASCII)
FILES = (*MEMORY_FILES, *CPU_FILES)


def is_one(text: str) -> bool:
    """It has what a group's file has: an amount, or the amounts of memory.stat."""
    return bool(AMOUNT.fullmatch(text)) or any(map(STAT.fullmatch, lines(text)))


def group_of(cgroup: str, controller: str) -> str | None:
    """The group of /proc/self/cgroup: of a controller, or "" for the one tree of version 2."""
    for line in lines(cgroup):
        found = GROUP.fullmatch(line)
        if found and controller in found[1].split(","):
            return found[2]
    return None


def parse_groups(groups: Iterable[Mapping[str, str]]) -> Limits:
    """Each group that this process is in, with its files: a limit on any of them holds for us."""
    limits, rooms, quotas = [], [], []
    free: set[Literal["memory", "cpus"]] = set()
    for files in groups:
        free |= _unlimited(files)
        limit = _limit(files)
        if limit is not None:
            limits.append(limit)
            used = _used(files)
            if used is not None:
                rooms.append(max(limit - used, 0))
        if (quota := _cpus(files)) is not None:
            quotas.append(quota)
    return Limits(
        memory_bytes=min(limits, default=None),
        memory_room_bytes=min(rooms, default=None),
        cpus=min(quotas, default=None),
        unlimited=frozenset(
            free - ({"memory"} if limits else set()) - ({"cpus"} if quotas else set())
        ),
    )


def _unlimited(files: Mapping[str, str]) -> set[Literal["memory", "cpus"]]:
    """What this group says to have no limit."""
    memory, quota = _memory_limit(files), files.get("cpu.cfs_quota_us", "").strip()
    free: set[Literal["memory", "cpus"]] = set()
    if memory == "max" or (memory.isdecimal() and int(memory) >= UNLIMITED_BYTES):
        free.add("memory")
    if files.get("cpu.max", "").split()[:1] == ["max"] or quota == "-1":
        free.add("cpus")
    return free


def _memory_limit(files: Mapping[str, str]) -> str:
    return files.get("memory.max", files.get("memory.limit_in_bytes", "")).strip()


def _limit(files: Mapping[str, str]) -> int | None:
    text = _memory_limit(files)
    limit = int(text) if re.fullmatch(r"\d{1,19}", text, re.ASCII) else None
    return None if limit is None or limit >= UNLIMITED_BYTES else limit


def _used(files: Mapping[str, str]) -> int | None:
    """What is in use and can't be dropped: file pages make room when they must."""
    used = whole(files.get("memory.current", files.get("memory.usage_in_bytes", "")).strip())
    if used is None:
        return None
    found = (STAT.fullmatch(line) for line in lines(files.get("memory.stat", "")))
    stat = {match[1]: int(match[2]) for match in found if match}
    file_pages = sum(
        # Version 1 has each line twice: of the group alone, and "total_" with those below it.
        stat.get(f"total_{name}", stat.get(name, 0))
        for name in ("active_file", "inactive_file")
    )
    return max(used - file_pages, 0)


def _cpus(files: Mapping[str, str]) -> float | None:
    """CPUs' worth of time: the quota of each period."""
    legacy = f"{files.get('cpu.cfs_quota_us', '')} {files.get('cpu.cfs_period_us', '')}"
    found = CPU_MAX.fullmatch(files.get("cpu.max", " ".join(legacy.split())))
    return int(found[1]) / int(found[2]) if found and int(found[1]) and int(found[2]) else None

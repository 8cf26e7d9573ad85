"""`python3 -m placing.report`: prints where the engine's memory lies, as one JSON `PageReport`.

Run in the engine's container, under the engine's user: nobody else may read its numa_maps.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from placing.policy import may_be_set
from wire.numa import PageReport, below, page_report

PROC = Path("/proc")
SYS_NICE = 23  # CAP_SYS_NICE in include/uapi/linux/capability.h
# Walking the page tables of 400 GB takes seconds; whoever asked has stopped waiting after this.
PATIENCE_S = 50


def report(weights_dir: Path, proc: Path = PROC) -> PageReport:
    """Of the process here that maps most of the weights folder."""
    has_sys_nice = _has_sys_nice(proc / "self")
    rights = {"has_sys_nice": has_sys_nice, "may_set_policy": may_be_set()}
    folder = PurePosixPath(weights_dir)
    engine = max(_users(proc, folder), default=None, key=lambda found: found[1])
    if engine is None:
        return PageReport(trouble=f"no process here maps a file of {weights_dir}", **rights)
    process, _ = engine
    numa_maps = _text(process / "numa_maps")
    if numa_maps is None:
        return PageReport(trouble=f"{process / 'numa_maps'} can't be read", **rights)
    found = page_report(numa_maps, folder, _sizes(weights_dir))
    kilobytes = _field(process / "status", "VmRSS")
    return found.model_copy(
        update={
            **rights,
            "rss_bytes": int(kilobytes.split()[0]) * 1024 if kilobytes else None,
            "cpus": _cpus(process),
        }
    )


def _users(proc: Path, folder: PurePosixPath) -> Iterator[tuple[Path, int]]:
    """Processes that map files of the folder, and how many bytes of address space."""
    for process in proc.iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            lines = (_text(process / "maps") or "").splitlines()
            if mapped := sum(_mapped(line, folder) for line in lines):
                yield process, mapped


def _mapped(line: str, folder: PurePosixPath) -> int:
    """Of one line of /proc/PID/maps: `first-last perms offset device inode path`."""
    addresses, *_, file = line.split(maxsplit=5)
    if below(file, folder) is None:
        return 0
    first, last = addresses.split("-")
    return int(last, 16) - int(first, 16)


def _sizes(folder: Path) -> Mapping[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }


def _cpus(process: Path) -> Mapping[str, int]:
    """Allowed CPUs -> how many threads are held to just them."""
    allowed = (_field(thread / "status", "Cpus_allowed_list") for thread in _threads(process))
    return dict(Counter(cpus for cpus in allowed if cpus))


def _threads(process: Path) -> list[Path]:
    try:
        return list((process / "task").iterdir())
    except OSError:
        return []


def _has_sys_nice(process: Path) -> bool | None:
    # The bounding set: a program that is not root holds none itself, and the filter goes by this one.
    bounds = _field(process / "status", "CapBnd")
    return bool(int(bounds, 16) >> SYS_NICE & 1) if bounds else None


def _field(status: Path, name: str) -> str | None:
    for line in (_text(status) or "").splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2].strip()
    return None


def _text(path: Path) -> str | None:
    """None: it ended meanwhile, belongs to another user, or this kernel has no such file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


if __name__ == "__main__":
    signal.alarm(PATIENCE_S)
    sys.stdout.write(report(Path(os.environ["WEIGHTS_DIR"])).model_dump_json() + "\n")

"""How far a load has come, by what the kernel says of the engine's process: llama.cpp says nothing.

It maps the files and has them read in, so what of them is in its memory is what is loaded, or what it
has read to put it in its place before. Standard library only, as everything that the healthcheck runs.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FIRST = 1
_START_TICKS = 19  # of what follows the name in /proc/PID/stat: starttime, its 22nd field


def progress(
    environment: Mapping[str, str], proc: Path = Path("/proc"), first: int = FIRST
) -> dict[str, Any] | None:
    """None where there is no engine, or nothing can be told of it. `first`: the container's process 1."""
    try:
        total = _total_bytes(Path(environment["LOCK_FILE"]))
        engine = proc / str(_child(_supervisor(first, proc), proc))
        mapped = _field(engine / "status", "RssFile") * 1024
        elapsed_s = _elapsed_s(engine, proc)
    except (OSError, ValueError, LookupError):
        return None
    read = _read_bytes(engine)
    loaded = min(max(mapped, read or 0), total)
    return {
        "status": "loading",
        "loaded_bytes": loaded,
        "total_bytes": total,
        "read_bytes": read,
        "eta_s": round(elapsed_s * (total - loaded) / loaded, 1) if loaded else None,
    }


def _supervisor(process: int, proc: Path) -> int:
    """Docker's init, or any other, may stand before it: it is the first that runs our interpreter."""
    ours = (proc / "self/comm").read_text(encoding="utf-8")
    while (proc / f"{process}/comm").read_text(encoding="utf-8") != ours:
        process = _child(process, proc)
    return process


def _child(process: int, proc: Path) -> int:
    children = (proc / f"{process}/task/{process}/children").read_text(encoding="ascii")
    return int(children.split()[0])


def _total_bytes(lock: Path) -> int:
    files = json.loads(lock.read_bytes())["files"]
    return sum(file["size_bytes"] for file in files if file["path"].endswith(".gguf"))


def _read_bytes(engine: Path) -> int | None:
    """From the disk; some kernels don't count it, or not for us."""
    try:
        return _field(engine / "io", "read_bytes")
    except (OSError, LookupError):
        return None


def _field(path: Path, name: str) -> int:
    lines = path.read_text(encoding="ascii").splitlines()
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(found[name].split()[0])


def _elapsed_s(engine: Path, proc: Path) -> float:
    uptime_s = float((proc / "uptime").read_text(encoding="ascii").split()[0])
    # The name stands in brackets and may have blanks in it.
    after = (engine / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return uptime_s - int(after[_START_TICKS]) / os.sysconf("SC_CLK_TCK")

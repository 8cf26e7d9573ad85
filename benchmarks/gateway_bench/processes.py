"""A server's processes: started, waited for, measured, ended."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_UP_WITHIN_S = 120.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@contextlib.contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], port: int, log: Path
) -> Iterator[int]:
    """A server in a session of its own, once it takes connections; yields its process id."""
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - commands of proxies.py
            command, env=dict(environment), stdout=output, stderr=output, start_new_session=True
        )
    try:
        _wait_for(process, port, log)
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + _UP_WITHIN_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None or time.monotonic() > deadline_s:
            message = f"not up: {log.read_text(errors='replace')[-2000:]}"
            raise RuntimeError(message)
        time.sleep(0.1)


def cpu_s(pid: int) -> float:
    """Of the process, its threads and its children, to the nanosecond where the kernel counts so."""
    return sum(_cpu_s(Path(f"/proc/{each}")) for each in _tree(pid))


def pss_bytes(pid: int) -> int:
    """Memory, with what is shared counted by its share."""
    total = 0
    for each in _tree(pid):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{each}/smaps_rollup").read_text()
            total += int(text.split("\nPss:")[1].split()[0]) * 1024
    return total


def _tree(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def _cpu_s(process: Path) -> float:
    nanoseconds = 0
    with contextlib.suppress(OSError):
        for task in (process / "task").iterdir():
            with contextlib.suppress(OSError):
                nanoseconds += int((task / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9

"""Facts about this machine: thin reads, pure parses."""

import errno
import os
import pwd
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path

from orchestrator.core.facts import Gpu, HostFacts

NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")

CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


def read_host(weights_dir: Path, ports: Iterable[int]) -> HostFacts:
    """`ports`: those that nobody may listen on yet."""
    return HostFacts(
        memory_available_bytes=parse_memory(_text(Path("/proc/meminfo"))),
        disk_free_bytes=_disk_free(weights_dir),
        cpu_flags=parse_cpu_flags(_text(Path("/proc/cpuinfo"))),
        gpus=_gpus(),
        busy_ports=frozenset(port for port in ports if _is_busy(port)),
        uid=os.getuid(),
        gid=_login_gid(),
    )


def ca_bundle() -> Path | None:
    """The certificates this host trusts: the file its own tools are told, else the system's."""
    named = (os.environ.get(variable) for variable in CA_VARIABLES)
    bundle = next((Path(name) for name in named if name), CA_BUNDLE).absolute()
    return bundle if bundle.is_file() else None


def parse_memory(meminfo: str) -> int | None:
    """MemAvailable of /proc/meminfo, in bytes."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def parse_cpu_flags(cpuinfo: str) -> frozenset[str] | None:
    """The flags of the first CPU in /proc/cpuinfo (x86); None where there is no such line."""
    found = re.search(r"^flags\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    return frozenset(found[1].split()) if found else None


def parse_gpus(query: str) -> tuple[Gpu, ...]:
    """Output of NVIDIA_SMI: a line a GPU, its memory in MiB. Lines of another shape are no GPU."""
    rows = (line.rsplit(",", 1) for line in query.splitlines() if "," in line)
    return tuple(
        Gpu(name=name.strip(), memory_bytes=int(mebibytes) << 20)
        for name, mebibytes in rows
        if mebibytes.strip().isdigit()
    )


def _gpus() -> tuple[Gpu, ...] | None:
    if shutil.which(NVIDIA_SMI[0]) is None:
        return ()
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            NVIDIA_SMI, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_gpus(done.stdout)


def _login_gid() -> int:
    """The user's own group: `sg docker` and newgrp lend the process another."""
    try:
        return pwd.getpwuid(os.getuid()).pw_gid
    except KeyError:  # a user that no directory knows
        return os.getgid()


def _disk_free(folder: Path) -> int | None:
    there = next((place for place in (folder, *folder.parents) if place.exists()), None)
    return shutil.disk_usage(there).free if there else None


def _is_busy(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

"""Everything that can be told about this machine without the network, at once."""

import errno
import os
import pwd
import resource
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orchestrator.adapters.host.cards import read_cards
from orchestrator.adapters.host.containers import read_docker
from orchestrator.adapters.host.disks import read_disk
from orchestrator.adapters.host.machine import read_machine
from orchestrator.core.facts import HostFacts


def read_host(weights_dir: Path, ports: Iterable[int]) -> HostFacts:
    """`ports`: those that nobody may listen on yet."""
    with ThreadPoolExecutor(2) as pool:
        docker_asked, cards_asked = pool.submit(read_docker), pool.submit(read_cards)
        machine = read_machine()
        disk = read_disk(weights_dir, virtual=bool(machine.limits.virtual))
        docker, cards = docker_asked.result(), cards_asked.result()
    return machine.model_copy(
        update={
            "gpus": cards.gpus,
            "lost_gpus": cards.lost,
            "driver_version": cards.driver_version,
            "driver_cuda": cards.driver_cuda,
            "disk": disk,
            "docker": docker,
            "limits": machine.limits.model_copy(update={"memlock_bytes": _memlock_bytes()}),
            "busy_ports": frozenset(port for port in ports if _is_busy(port)),
            "uid": os.getuid(),
            "gid": _login_gid(),
        }
    )


def _memlock_bytes() -> int:
    """RLIM_INFINITY is -1, as in the facts."""
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]


def _login_gid() -> int:
    """The user's own group: `sg docker` and newgrp lend the process another."""
    try:
        return pwd.getpwuid(os.getuid()).pw_gid
    except KeyError:  # a user that no directory knows
        return os.getgid()


def _is_busy(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False

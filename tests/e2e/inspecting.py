"""What tests of a running stack look at it with."""

import http.client
import json
import re
import socket
from collections.abc import Mapping
from contextlib import closing
from ipaddress import ip_address
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from docker.models.containers import Container

from e2e.scenario import Appliance

RUNNING = ("inference", "gateway", "webui")
SERVICES = ("weights", *RUNNING)
Doors = Mapping[str, str]
# It prints one JSON value. It runs inside containers, which have Python and little else.
CONNECT = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def answers(door):
    host, _, port = door.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except OSError:
        return False
    return True
doors = sys.argv[1:]
with ThreadPoolExecutor(len(doors)) as pool:
    print(json.dumps([door for door, open in zip(doors, pool.map(answers, doors)) if open]))
"""


def internet_doors() -> set[str]:
    """address:port of every mirror and proxy that this host is set up to use, and can resolve."""
    apt = Path("/etc/apt")
    files = [apt / "sources.list", *apt.glob("sources.list.d/*")]
    lines = chain.from_iterable(file.read_text().splitlines() for file in files if file.is_file())
    urls = re.findall(r"https?://[^\s/\]]+", "\n".join(x for x in lines if not x.startswith("#")))
    found = set()
    for url in (urlsplit(text) for text in [*urls, *getproxies().values()]):
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            resolved = socket.getaddrinfo(url.hostname, port, socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            continue
        found |= {f"{address[0]}:{port}" for *_, address in resolved}
    return {door for door in found if not ip_address(door.rpartition(":")[0]).is_loopback}


def inside(container: Container, code: str, *arguments: str, user: str = "") -> Any:
    """What the code prints in a running container, as JSON."""
    status, said = container.exec_run(["python3", "-c", code, *arguments], user=user)
    assert isinstance(said, bytes)
    assert status == 0, said.decode()
    return json.loads(said)


def listening(port: int) -> set[str]:
    """The addresses of this host on which something listens at the port, per the kernel."""
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:]:
            _, local, _, state = line.split()[:4]
            address, _, its_port = local.partition(":")
            if state == "0A" and int(its_port, 16) == port:
                words = [address[i : i + 8] for i in range(0, len(address), 8)]
                packed = b"".join(bytes.fromhex(word)[::-1] for word in words)
                found.add(str(ip_address(packed)))
    return found


def opens(host: str, port: str) -> bool:
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except OSError:
        return False
    return True


def ask(appliance: Appliance, method: str, target: str, key: str = "") -> tuple[int, bytes]:
    """The gateway's status and body. The target goes out as it stands, dots and slashes too."""
    with closing(http.client.HTTPConnection(urlsplit(appliance.gateway).netloc, timeout=30)) as to:
        to.request(method, target, headers={"Authorization": f"Bearer {key}"} if key else {})
        answer = to.getresponse()
        return answer.status, answer.read()

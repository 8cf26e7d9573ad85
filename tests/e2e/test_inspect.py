"""What the running stack gives away, may do and can reach, as Docker, kernel and network show it."""

import http.client
import json
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from ipaddress import ip_address
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import docker
import pytest
from docker.models.containers import Container

from e2e.scenario import Appliance

RUNNING = ("inference", "gateway", "webui")
SERVICES = ("weights", *RUNNING)
SECRETS = (
    "engine_api_key",
    "gateway_api_key",
    "webui_api_key",
    "webui_admin_password",
    "webui_secret_key",
)
GIVEN = "hf_token"  # the operator's to fill: empty here

# Everything a container is given from outside: where it stands there, and whether it is writable.
MOUNTS = {
    "weights": {
        "/job": False,
        "/source": False,
        "/weights": True,
        "/etc/ssl/host-ca.crt": False,
        "/run/secrets/hf_token": False,
    },
    "inference": {"/locks": False, "/weights": False, "/run/secrets/engine_api_key": False},
    "gateway": {
        "/control": True,
        "/usage": True,
        "/run/secrets/engine_api_key": False,
        "/run/secrets/gateway_api_key": False,
        "/run/secrets/webui_api_key": False,
    },
    "webui": {
        "/data": True,
        "/run/secrets/webui_api_key": False,
        "/run/secrets/webui_admin_password": False,
        "/run/secrets/webui_secret_key": False,
    },
}

Doors = Mapping[str, str]

# Each prints one JSON value. They run inside containers, which have Python and little else.
STANDING = """
import glob, json
wanted = "Uid", "Gid", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"
def fields(path):
    pairs = (line.split(":", 1) for line in open(path))
    return {name: value.split() for name, value in pairs if name in wanted}
print(json.dumps([fields(path) for path in glob.glob("/proc/[0-9]*/status")]))
"""
MEMORY_LIMIT = """
import os
v1, v2 = "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"
print(open(v2 if os.path.exists(v2) else v1).read())
"""
WRITE = """
import errno, json, os, sys
def attempt(folder):
    path = os.path.join(folder, "written-by-a-test")
    try:
        open(path, "w").close()
    except OSError as error:
        return errno.errorcode[error.errno]
    os.unlink(path)
    return "written"
print(json.dumps({folder: attempt(folder) for folder in sys.argv[1:]}))
"""
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
METRICS = """
import json, urllib.request
def page(path):
    return urllib.request.urlopen("http://gateway:9100" + path, timeout=30).read().decode()
print(json.dumps({path: page(path) for path in ("/metrics", "/metrics/engine")}))
"""
ENGINE_STATUS = """
import json, sys, urllib.error, urllib.request
def status(path, key):
    header = {"Authorization": "Bearer " + key} if key else {}
    request = urllib.request.Request("http://inference:8000" + path, headers=header)
    try:
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code
key = open(sys.argv[1]).read().strip() if sys.argv[1] else ""
print(json.dumps({path: status(path, key) for path in sys.argv[2:]}))
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    with closing(docker.from_env()) as client:
        yield client


@pytest.fixture(scope="module")
def containers(appliance: Appliance, engine: docker.DockerClient) -> Mapping[str, Container]:
    label = f"com.docker.compose.project={appliance.project}"
    found = engine.containers.list(all=True, filters={"label": label})
    return {container.labels["com.docker.compose.service"]: container for container in found}


@pytest.fixture(scope="module")
def doors(containers: Mapping[str, Container]) -> Doors:
    """Every open port of the stack inside its networks: `service@network` -> address:port."""
    ports = {"inference": 8000, "gateway": 8080, "webui": 8080}
    return {
        f"{service}@{name.rpartition('_')[2]}": f"{network['IPAddress']}:{port}"
        for service, port in ports.items()
        for name, network in containers[service].attrs["NetworkSettings"]["Networks"].items()
    }


@pytest.fixture(scope="module")
def outside(
    appliance: Appliance, containers: Mapping[str, Container], engine: docker.DockerClient
) -> list[str]:
    """Addresses of the world outside that a container with egress has just been seen to reach."""
    candidates = sorted(internet_doors())
    said = engine.containers.run(
        containers["weights"].attrs["Config"]["Image"],
        ["-c", CONNECT, *candidates],
        entrypoint="python3",
        network=f"{appliance.project}_egress",
        remove=True,
    )
    reached: list[str] = json.loads(said)
    assert reached, (
        "nothing is proven about egress here: even a container on the egress network reaches none "
        f"of {candidates}, the mirrors and proxies that this host is set up to use"
    )
    return reached


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


# --- secrets


def test_no_secret_can_be_read_from_docker_compose_logs_or_state(
    appliance: Appliance, containers: Mapping[str, Container]
) -> None:
    assert set(containers) == set(SERVICES)
    config = appliance.compose("config")
    assert "gateway_api_key" in config.stdout
    said = {"docker compose config": config.stdout + config.stderr}
    for service, container in containers.items():
        image = container.image
        assert image is not None
        said |= {
            f"docker inspect {service}": json.dumps(container.attrs),
            f"docker logs {service}": container.logs().decode(errors="replace"),
            f"image inspect {service}": json.dumps(image.attrs),
            f"image history {service}": json.dumps(image.history()),
        }
    for service in RUNNING:
        said[f"docker top {service}"] = json.dumps(containers[service].top())
    for file in (appliance.home / "state").rglob("*"):
        if file.is_file():
            said[str(file)] = file.read_text(errors="replace")
    leaks = [
        (where, name)
        for where, text in said.items()
        for name in SECRETS
        if appliance.secret(name) in text
    ]
    assert leaks == []


def test_secrets_are_files_that_only_the_stacks_user_reads(
    appliance: Appliance, containers: Mapping[str, Container]
) -> None:
    folder = appliance.home / "secrets"
    assert {file.name for file in folder.iterdir()} == {*SECRETS, GIVEN}
    assert folder.stat().st_mode & 0o777 == 0o700
    for name in (*SECRETS, GIVEN):
        file = (folder / name).stat()
        assert file.st_mode & 0o777 == 0o600
        assert containers["gateway"].attrs["Config"]["User"] == f"{file.st_uid}:{file.st_gid}"


# --- what a container may do


@pytest.mark.parametrize("service", SERVICES)
def test_docker_confines_a_container_to_what_it_needs(
    containers: Mapping[str, Container], service: str
) -> None:
    attributes = containers[service].attrs
    bounds = attributes["HostConfig"]
    uid, _, gid = attributes["Config"]["User"].partition(":")
    assert int(uid) > 0
    assert int(gid) > 0
    assert bounds["ReadonlyRootfs"] is True
    assert bounds["Privileged"] is False
    assert bounds["CapDrop"] == ["ALL"]
    added = {name.removeprefix("CAP_") for name in bounds["CapAdd"] or ()}
    assert added == ({"SYS_NICE"} if service == "inference" else set())
    assert bounds["SecurityOpt"] == ["no-new-privileges:true"]
    assert (bounds["Memory"] or 0) > 0
    assert (bounds["PidsLimit"] or 0) > 0
    assert bounds["PidMode"] == ""
    assert bounds["IpcMode"] == "private"
    assert not bounds["Devices"]
    given = {mount["Destination"]: mount["RW"] for mount in attributes["Mounts"]}
    assert given == MOUNTS[service]
    assert not [mount for mount in attributes["Mounts"] if mount["Source"].endswith(".sock")]


@pytest.mark.parametrize("service", RUNNING)
def test_the_kernel_holds_every_process_of_a_container_to_it(
    containers: Mapping[str, Container], service: str
) -> None:
    processes = inside(containers[service], STANDING)
    assert len(processes) > 1
    sys_nice = 1 << 23
    for process in processes:
        assert "0" not in process["Uid"] + process["Gid"]
        assert process["NoNewPrivs"] == ["1"]
        for held in ("CapPrm", "CapEff", "CapAmb"):
            assert int(process[held][0], 16) == 0
        assert int(process["CapBnd"][0], 16) == (sys_nice if service == "inference" else 0)
    limit = inside(containers[service], MEMORY_LIMIT)
    assert limit == containers[service].attrs["HostConfig"]["Memory"]


@pytest.mark.parametrize("service", RUNNING)
def test_nothing_is_written_beside_tmp_and_data_not_even_by_root(
    containers: Mapping[str, Container], service: str
) -> None:
    closed = ["/", "/etc", "/usr/bin", "/opt/app", "/opt/app/src", "/run/secrets"]
    closed += [path for path in MOUNTS[service] if path in ("/locks", "/weights")]
    attempts = inside(containers[service], WRITE, "/tmp", *closed, user="0")
    assert attempts == {"/tmp": "written"} | dict.fromkeys(closed, "EROFS")


# --- what reaches what


@pytest.mark.parametrize(
    ("service", "neighbours"),
    [
        ("inference", {"inference@engine", "gateway@engine"}),
        ("gateway", {"inference@engine", "gateway@engine", "gateway@edge", "webui@edge"}),
        ("webui", {"gateway@edge", "webui@edge"}),
    ],
)
def test_a_service_reaches_its_neighbours_and_neither_the_rest_nor_the_internet(
    containers: Mapping[str, Container],
    doors: Doors,
    outside: list[str],
    service: str,
    neighbours: set[str],
) -> None:
    reached = inside(containers[service], CONNECT, *doors.values(), *outside)
    assert set(reached) == {doors[neighbour] for neighbour in neighbours}


def test_only_gateway_and_chat_page_are_published_and_on_the_loopback_alone(
    appliance: Appliance, containers: Mapping[str, Container]
) -> None:
    published = {
        service: [
            (binding["HostIp"], binding["HostPort"])
            for bindings in container.attrs["NetworkSettings"]["Ports"].values()
            for binding in bindings or ()
        ]
        for service, container in containers.items()
    }
    gateway, webui = appliance.settings["gateway_port"], appliance.settings["webui_port"]
    assert published == {
        "weights": [],
        "inference": [],
        "gateway": [("127.0.0.1", gateway)],
        "webui": [("127.0.0.1", webui)],
    }
    for port in (int(gateway), int(webui)):
        assert listening(port) == {"127.0.0.1"}


def test_the_ports_are_closed_on_every_other_address_of_this_host(
    appliance: Appliance, engine: docker.DockerClient
) -> None:
    bridge = engine.networks.get(f"{appliance.project}_edge")
    host = bridge.attrs["IPAM"]["Config"][0]["Gateway"]
    for port in (appliance.settings["gateway_port"], appliance.settings["webui_port"]):
        assert opens("127.0.0.1", port)
        assert not opens(host, port)


def test_the_engine_asks_even_its_neighbours_for_its_own_key(
    containers: Mapping[str, Container],
) -> None:
    paths = ("/v1/models", "/props", "/metrics")
    keys = "/run/secrets"
    with_its_key = inside(
        containers["gateway"], ENGINE_STATUS, f"{keys}/engine_api_key", *paths, "/health"
    )
    assert with_its_key == dict.fromkeys([*paths, "/health"], 200)
    for wrong in ("", f"{keys}/gateway_api_key"):
        found = inside(containers["gateway"], ENGINE_STATUS, wrong, *paths)
        assert found == dict.fromkeys(paths, 401)


# --- what the gateway lets through


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/"),
        ("GET", "/health"),
        ("GET", "/slots"),
        ("GET", "/metrics"),
        ("GET", "/props"),
        ("POST", "/props"),
        ("POST", "/completion"),
        ("POST", "/v1/embeddings"),
        ("GET", "/models"),
        ("GET", "/v1/models/"),
        ("GET", "//v1/models"),
        ("GET", "/v1//models"),
        ("GET", "/v1/../health"),
        ("GET", "/v1/models/../../slots"),
        ("GET", "/v1/%2e%2e/props"),
        ("GET", "http://inference:8000/props"),
        ("POST", "/v1/chat/completions/../../completion"),
        ("GET", "/docs"),
    ],
)
def test_the_gateway_passes_on_nothing_that_it_does_not_name(
    appliance: Appliance, method: str, target: str
) -> None:
    status, body = ask(appliance, method, target, appliance.secret("gateway_api_key"))
    assert status == 404
    assert json.loads(body)["error"]["code"] == "unknown_url"  # in the gateway's own words
    assert ask(appliance, method, target)[0] == 401


@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/v1/chat/completions"), ("POST", "/v1/models"), ("DELETE", "/v1/models")],
)
def test_the_gateway_passes_on_no_other_method(
    appliance: Appliance, method: str, target: str
) -> None:
    assert ask(appliance, method, target, appliance.secret("gateway_api_key"))[0] == 405


def test_the_gateway_opens_to_its_own_key_only(appliance: Appliance) -> None:
    assert ask(appliance, "GET", "/v1/models", appliance.secret("gateway_api_key"))[0] == 200
    for wrong in ("", "sk-wrong", appliance.secret("engine_api_key")):
        assert ask(appliance, "GET", "/v1/models", wrong)[0] == 401
        assert ask(appliance, "POST", "/v1/chat/completions", wrong)[0] == 401


def test_the_chat_pages_key_opens_the_gateway_too(appliance: Appliance) -> None:
    assert ask(appliance, "GET", "/v1/models", appliance.secret("webui_api_key"))[0] == 200


def test_metrics_are_for_the_network_inside_alone(
    appliance: Appliance, containers: Mapping[str, Container]
) -> None:
    assert ask(appliance, "GET", "/metrics", appliance.secret("gateway_api_key"))[0] == 404
    pages = inside(containers["webui"], METRICS)
    assert "\ngateway_requests_total{" in pages["/metrics"]
    assert "llamacpp" not in pages["/metrics"]
    assert "llamacpp" in pages["/metrics/engine"]

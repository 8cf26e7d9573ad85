"""Docker as it prints itself, for programs and for people, and its tools' versions."""

import json

import pytest

from orchestrator.core.facts import Docker
from orchestrator.core.probes import docker
from orchestrator.core.probes.captures import facts_of

INFO = {
    "ServerVersion": "28.2.2",
    "CgroupDriver": "systemd",
    "CgroupVersion": "2",
    "Runtimes": {"runc": {}, "nvidia": {}},
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"],
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}],
    "ClientInfo": {"Version": "28.2.2", "Plugins": [{"Name": "compose", "Version": "2.26.1"}]},
}


def test_docker_is_read_from_its_json() -> None:
    assert docker.parse_info(json.dumps(INFO)) == Docker(
        answers=True,
        version="28.2.2",
        compose_version="2.26.1",
        nvidia_runtime=True,
        cdi=True,
        cgroup_driver="systemd",
        rootless=True,
    )
    assert facts_of({"docker-info.json": json.dumps(INFO)}).limits.cgroup_version == 2


def test_a_client_without_its_daemon_is_not_docker_that_answers() -> None:
    told = docker.parse_version('{"Client":{"Version":"28.2.2"},"Server":null}')
    assert told == Docker(answers=False, version="28.2.2")


def test_docker_is_read_from_what_it_prints_for_people() -> None:
    text = (
        "Client: Docker Engine - Community\n Version:    24.0.1\n Plugins:\n"
        "  buildx: Docker Buildx (Docker Inc.)\n    Version:  v0.10.4\n"
        "  compose: Docker Compose (Docker Inc.)\n    Version:  v2.18.1\n\n"
        "Server:\n Server Version: 24.0.2\n Cgroup Driver: systemd\n"
        " Runtimes: io.containerd.runc.v2 runc\n Security Options:\n  seccomp\n"
        "   Profile: builtin\n  cgroupns\n Kernel Version: 5.10.0-23-amd64\n"
    )
    assert docker.parse_info(text) == Docker(
        answers=True,
        version="24.0.2",
        compose_version="2.18.1",
        buildx_version="0.10.4",
        nvidia_runtime=False,
        cgroup_driver="systemd",
        rootless=False,
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Docker Compose version v2.24.5", "2.24.5"),
        ("Docker Compose version 2.26.1-4\n", "2.26.1-4"),
        ("github.com/docker/buildx 0.13.1+ds1 0.13.1+ds1-3", "0.13.1+ds1"),
        ("NVIDIA Container Toolkit CLI version 1.14.3\ncommit: 53b24618", "1.14.3"),
        ("docker: 'compose' is not a docker command.", None),
    ],
)
def test_a_tools_version_is_the_first_in_what_it_says(text: str, version: str | None) -> None:
    assert docker.version_in(text) == version

"""Stacks for tests: one that is up for all who only use it, and fresh ones for those who break it."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from e2e.inspecting import CONNECT, Doors, internet_doors
from e2e.scenario import Appliance

KEEP = "KEEP_FAILED_STACKS"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "e2e" in item.path.parts:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """A stack that is up, with the demo profile. Use it; do not change it."""
    shared = Appliance(tmp_path_factory.mktemp("appliance"))
    try:
        shared.up()
        yield shared
    finally:
        shared.remove()


@pytest.fixture
def new_appliance(tmp_path: Path) -> Iterator[Callable[..., Appliance]]:
    """Make stacks that are a test's own: nothing is started yet."""
    made: list[Appliance] = []

    def make(**settings: str) -> Appliance:
        home = tmp_path / f"appliance{len(made)}"
        home.mkdir()
        made.append(Appliance(home, settings))
        return made[-1]

    yield make
    if not os.environ.get(KEEP):
        for one in made:
            one.remove()


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

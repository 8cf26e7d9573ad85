"""Stacks for tests: one that is up for all who only use it, and fresh ones for those who break it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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

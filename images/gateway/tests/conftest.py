"""One paced engine and one gateway in front of it, shared by the tests that do not break them."""

from collections.abc import Iterator

import pytest

from images.gateway.tests.support import ENGINE_KEY, Gateway, environment, running_gateway
from paced_engine.running import RunningEngine, running_engine


@pytest.fixture(scope="session")
def engine() -> Iterator[RunningEngine]:
    with running_engine(api_key=ENGINE_KEY) as running:
        yield running


@pytest.fixture(scope="session")
def gateway(engine: RunningEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running_gateway(environment(tmp_path_factory.mktemp("keys"), engine.url)) as running:
        yield running

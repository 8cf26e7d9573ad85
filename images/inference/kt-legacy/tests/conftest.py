"""One server over a model that recites, for the tests that leave it as it is."""

from collections.abc import Iterator

import pytest

from reciting import Engine, Reciter, serving


@pytest.fixture
def model() -> Reciter:
    return Reciter()


@pytest.fixture
def engine(model: Reciter) -> Iterator[Engine]:
    with serving(model) as running:
        yield running

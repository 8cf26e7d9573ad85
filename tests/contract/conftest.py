"""What several contracts are about."""

from typing import Any

import pytest

from composed import an_env, read_by_compose


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The stack as Compose itself reads it, from the env file as we write it."""
    return read_by_compose(tmp_path_factory.mktemp("env"), an_env())

"""The engine's container, without Docker."""

from pathlib import Path

import pytest

from images.inference.llamacpp.tests.engine_process import Container, a_container


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return a_container(tmp_path, "with a template")

"""A hub over one repository, for tests that do with it what they like."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hub import Hub
from hub.asking import BIG, BIG_BYTES, REPO, SMALL


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / REPO
    (folder / "Q4").mkdir(parents=True)
    (folder / BIG).write_bytes(BIG_BYTES)
    (folder / "Q4/a-00002-of-00002.gguf").write_bytes(b"second")
    # "hello\n" has this blob hash in every git repository in the world.
    (folder / SMALL).write_bytes(b"hello\n")
    return tmp_path


@pytest.fixture
def hub(root: Path) -> Iterator[Hub]:
    with Hub(root) as hub:
        yield hub

import time
from pathlib import Path

import pytest

from gpu.narrow import HF, NARROW
from gpu.proven import folder_of
from gpu.synthetic_model import REPO, write


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    write(NARROW, HF, tmp_path, time.monotonic() + 60)
    return sorted((tmp_path / folder_of(REPO) / "weights").glob("*.gguf"))

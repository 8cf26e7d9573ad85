"""Every flag that the program is given is one that its source knows, and has a value where it needs one."""

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from images.inference.llamacpp.tests.argument_table import flags_of
from llamacpp_engine.server import arguments
from llamacpp_engine.settings import Settings

HERE = Path(__file__).parent
ENGINE = HERE.parent
KT_LEGACY = ENGINE.parent / "kt-legacy"
RECORDED = json.loads((HERE / "recorded/llama-server-flags.json").read_text(encoding="utf-8"))
LOCK = (ENGINE / "cuda/source.lock").read_text(encoding="utf-8")


def settings(cards: tuple[str, ...]) -> Settings:
    return Settings(
        lock_file=Path("/lock"),
        weights_dir=Path("/weights"),
        model_file="model.gguf",
        model_name="a-model",
        api_key_file=Path("/key"),
        context_tokens=4096,
        slots=1,
        max_tokens=100,
        threads=2,
        cuda_visible_devices=cards,
    )


@pytest.mark.parametrize("cards", [("0",), ("0", "1")])
@pytest.mark.parametrize("template", [None, "{{ messages }}"])
def test_the_programs_own_table_has_every_flag(
    cards: tuple[str, ...], template: str | None
) -> None:
    words = list(arguments(settings(cards), Path("/weights/model.gguf"), template))
    while words:
        flag = words.pop(0)
        assert flag in RECORDED["value_follows"]
        if RECORDED["value_follows"][flag]:
            words.pop(0)


def test_the_table_is_of_the_source_that_the_image_is_compiled_from() -> None:
    assert re.findall(r"sha256:([0-9a-f]{64})", LOCK) == [RECORDED["sha256"]]
    assert LOCK.startswith(RECORDED["source"] + " ")


@pytest.mark.long
def test_the_table_is_what_the_source_says(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python3"
    subprocess.run([python, "-m", "pip", "install", "-q", "scikit-build-core"], check=True)
    fetch = KT_LEGACY / "build/fetch-source"
    subprocess.run(
        ["sh", fetch, ENGINE / "cuda", ENGINE / "cuda/source.lock", tmp_path],
        env=os.environ | {"PATH": f"{python.parent}:{os.environ['PATH']}"},
        check=True,
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    name = archive.name.removesuffix(".tar.gz")
    with tarfile.open(archive) as files:
        table = files.extractfile(f"{name}/vendor/llama.cpp/common/arg.cpp")
        assert table is not None
        assert flags_of(table.read().decode()) == RECORDED["value_follows"]

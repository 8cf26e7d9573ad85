"""The checks on a GPU, tried without one: everything is real but the model."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from gpu import marlin, record
from gpu.book import Book
from gpu.engine import CHAT, KEY, ROOT, Start, running
from gpu.forms import older
from gpu.gateway_turns import budget
from gpu.kt_legacy import FIXTURES, REPLIES
from gpu.narrow import NARROW
from gpu.synthetic_model import write
from gpu.with_gateway import CHECKS, form_checks
from recording.asked import QUESTION
from recording.recorded import recording_in

pytestmark = pytest.mark.long

SOURCES = (
    ".",
    "tests",
    "images/wire/src",
    "images/inference/placing/src",
    "images/inference/kt-legacy/src",
)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What run.sh leaves, with a model that recites."""
    work = tmp_path / "work"
    (work / "cpu/avx2").mkdir(parents=True)
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 0\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    paths = [str(ROOT / source) for source in SOURCES]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    gateway = [str(ROOT / "images/gateway/src"), *(path for path in sys.path if "site-" in path)]
    monkeypatch.setenv("GATEWAY_PYTHONPATH", os.pathsep.join(gateway))
    monkeypatch.setenv("WATCHED_WORKER", "gpu.reciting_worker")
    return work


def test_every_check_through_the_gateway_passes_but_the_one_that_asks_the_card(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [check.__name__ for check in CHECKS if check is not budget]
    monkeypatch.setenv("WITH_GATEWAY_ONLY", ",".join(names))
    book = Book(tmp_path / "with-gateway.json", {})
    files = [older(FIXTURES, name, work / "weights") for name in ("Q4_K_M", "Q5_K_M")]
    form_checks("older", files, work, tmp_path, book)
    assert book.reports["older"]["failed"] == {}
    assert {*names, "hold", "swap", "logs"} <= book.reports["older"]["seconds"].keys()


def test_the_engine_starts_on_a_model_that_was_written_on_the_spot(
    work: Path, tmp_path: Path
) -> None:
    weights = write(NARROW, FIXTURES / "hf", work / "synthetic", time.monotonic() + 60)
    start = Start(weights=weights, threads=1, tree=NARROW.tree, watched=tmp_path / "watched.json")
    with running(start, work, tmp_path / "log") as engine:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
        assert engine.ask("POST", CHAT, body)[0] == 200


def test_how_it_answers_is_recorded(work: Path, tmp_path: Path) -> None:
    assert record.main(work, tmp_path) == 0
    text = (tmp_path / "recorded" / record.FILE).read_text(encoding="utf-8")
    recording = recording_in(text)
    said = recording.answers["chat"].json()["choices"][0]["message"]["content"]
    assert said == REPLIES[QUESTION]
    # It works on one at a time, and is free for the next when its client has left.
    assert (recording.second.status, recording.next.status) == (503, 200)
    assert KEY not in text


def test_the_check_of_marlin_goes_on_where_parts_of_it_fail(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here nothing that needs torch can pass. What the engine itself is asked is still measured."""
    monkeypatch.setattr(marlin, "Shape", lambda **_: NARROW)
    assert marlin.main(work, tmp_path) == 1
    report = json.loads((tmp_path / "marlin.json").read_text(encoding="utf-8"))
    assert report["left_out"] == []
    assert {"machine code", "layers", "model"} <= report["failed"].keys()
    runs = [(run["placement"], run["context"]) for run in report["runs"]]
    assert runs == [("single-gpu", 8192), ("single-gpu", 131_072), ("single-gpu-no-marlin", 8192)]
    assert all(run["tokens_per_s"] > 0 and run["ready_s"] > 0 for run in report["runs"])
    assert report["tinyseek"]["replies"] == report["experts"]["replies"] == len(REPLIES) + 1
    # Nobody says by which class experts are computed where no GPU computes them.
    assert "experts: experts" in report["failed"]

"""What the GPU checks are made of, as far as no GPU is needed."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from fitting import a_profile, settings_of, tinyseek
from gpu import figures, llamacpp_figures, memory
from gpu.narrow import HF, NARROW
from gpu.synthetic import points
from gpu.synthetic_model import q4_k, q6_k, write
from gpu.tables import FORMS
from orchestrator.core.facts import HostFacts
from orchestrator.core.kt_legacy.tree import Tree
from orchestrator.core.offload import CONTEXT_BYTES
from orchestrator.core.terms import Term, memory_terms
from orchestrator.core.vram import LOADING
from wire.gguf_checks import problems


def test_a_written_model_contradicts_itself_nowhere(shards: list[Path]) -> None:
    headers = memory.headers_of(shards)
    assert not list(problems({p.name: (h, p.stat().st_size) for p, h in headers.items()}))


def test_a_written_model_has_the_shape_that_was_asked_for(shards: list[Path]) -> None:
    found = memory.inventory(memory.headers_of(shards)).shape
    assert (found.layers, found.hidden, found.heads, found.vocabulary) == (3, 256, 2, 8500)
    assert (found.experts, found.experts_used, found.leading_dense) == (8, 2, 1)
    assert (found.key_length, found.kv_lora_rank, found.rope_length) == (192, 256, 64)
    assert NARROW.tree == Tree(layers=3, dense_layers=1, yarn=True)


def test_its_tokenizer_knows_every_token_and_its_config_the_same_numbers(
    shards: list[Path],
) -> None:
    hf = shards[0].parents[1] / "hf"
    vocabulary = json.loads((hf / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(8500))
    config = json.loads((hf / "config.json").read_text(encoding="utf-8"))
    assert (config["vocab_size"], config["num_hidden_layers"]) == (8500, 3)


def test_a_model_that_takes_too_long_to_write_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        write(NARROW, HF, tmp_path, time.monotonic() - 1)


def test_random_blocks_hold_numbers_of_a_small_spread_around_zero() -> None:
    random = np.random.default_rng(1)
    four, six = q4_k(1000, random), q6_k(1000, random)
    d, dmin = four[:, :4].copy().view(np.float16).astype(np.float64).T
    quants = np.concatenate([four[:, 16:] & 15, four[:, 16:] >> 4], axis=1)
    numbers = 32 * (d[:, None] * quants - dmin[:, None])
    assert abs(numbers.mean()) < 1e-4
    assert numbers.std() == pytest.approx(0.01, rel=0.02)
    assert np.isfinite(six[:, 208:].copy().view(np.float16)).all()


def test_the_sweep_begins_with_the_planners_choice_and_never_tries_one() -> None:
    found = points(default=16, cores=16)
    assert found[:3] == [16, 17, 15]
    assert sorted(found) == list(range(2, 18))
    assert points(default=3, cores=2) == [3, 2]


def test_pages_of_a_file_are_counted_where_they_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, 16_384 * memory.PAGE)
    mapped = np.memmap(path, mode="r")
    assert int(mapped[0]) == 0
    some = np.count_nonzero(memory.present(os.getpid(), path))
    # The kernel maps a page's neighbours along with it.
    assert 1 <= some < 16_384
    assert int(mapped.sum()) == 0
    assert memory.present(os.getpid(), path).all()


def test_a_budget_is_laid_beside_what_was_found(shards: list[Path]) -> None:
    held = memory.inventory(memory.headers_of(shards))
    facts = HostFacts()
    _, plan = memory.planned("demo-gpu", held, facts, context_tokens=2048, chunk_tokens=64)
    vram = {term.name: term.size_bytes for term in plan.vram[0].terms}
    weights = sum(vram[name] for name in ("attention", "shared experts", "dense layers", "output"))
    torch = {
        "weights_bytes": weights + vram["norms and routers"],
        "cache_bytes": vram["KV cache"] * 2,
        "reserved_bytes": 0,
    }
    found = memory.Taken(
        vram=1 << 30, torch=torch, rss=3 << 30, rss_parts={}, experts=1, read_once=2 << 30
    )
    compared = memory.compared(plan, found)
    assert compared["weights on the GPU"]["ratio"] == 1
    assert compared["KV cache"]["ratio"] == 0.5
    assert compared["RAM of the engine"]["found_bytes"] == 1 << 30
    # What is there while it loads is gone when it is looked at.
    (card,) = plan.vram
    loading = Term(name=LOADING, size_bytes=1 << 33, formula="", certainty="derived")
    more = replace(plan, vram=(replace(card, terms=(*card.terms, loading)),))
    for row in ("VRAM", "VRAM without headroom"):
        assert memory.compared(more, found)[row] == compared[row]
    assert compared["VRAM"]["budget_bytes"] == card.need_bytes


def test_the_document_says_what_was_measured() -> None:
    text = figures.DOC.read_text(encoding="utf-8")
    assert figures.document(text) == text


SYNTHETIC: dict[str, Any] = {
    "failed": {},
    "shape": {"layers": 5, "dense_layers": 1},
    "files_bytes": {"a": 27_000_000_000},
    "planner": {"why": "16 physical cores, one left"},
    "bandwidth": [{"threads": 16, "triad": 1.5e11, "read": 2e11}],
    "sweep": [
        {"cpu_infer": 16, "context": 8192, "tokens_per_s": 90.0, "drawn_tokens_per_s": 50.0},
        {"cpu_infer": 16, "context": 131_072, "tokens_per_s": 80.0, "drawn_tokens_per_s": 50.0},
        {"cpu_infer": 2, "context": 8192, "tokens_per_s": 9.0, "drawn_tokens_per_s": 8.0},
        {"cpu_infer": 3, "context": 8192, "failed": "it crashed"},
    ],
    "speed": {
        "expert bytes of a token": 900_000_000,
        "limit of the memory, tokens_per_s": 222.2,
        "best": {"cpu_infer": 16, "tokens_per_s": 90.0},
        "share of the limit": 0.405,
        "default": {"cpu_infer": 16, "tokens_per_s": 90.0},
    },
}


def test_llamacpps_budget_holds_what_it_took_of_a_card_and_of_ram() -> None:
    """As measured, and no report of it is left out."""
    report = figures.kept("llamacpp")
    assert report is not None
    settings = settings_of(a_profile("deepseek-r1-ud-iq1s"), slots=1)
    (own,) = (
        term.size_bytes
        for term in memory_terms(
            a_profile("deepseek-r1-ud-iq1s"), settings, tinyseek(), on_card=True
        )
        if term.name == "CUDA's own"
    )
    for form in (report[name] for name in FORMS):
        assert 1.1 * llamacpp_figures.context_bytes(form["vram"]) < CONTEXT_BYTES
        assert own > 1.1 * llamacpp_figures.cudas_own_bytes(form)


def test_of_what_failed_the_words_are_kept_and_no_paths(tmp_path: Path, monkeypatch: Any) -> None:
    told = 'Traceback (most recent call last):\n  File "/somewhere/x.py"\nAssertionError: 3\n'
    report = {"older": {"failed": {"memory": told}, "log": ["a line"], "ready_s": 1.5}}
    (tmp_path / "llamacpp.json").write_text(json.dumps(report))
    monkeypatch.setattr(figures, "KEPT", tmp_path / "kept")
    figures.keep(tmp_path)
    assert figures.kept("llamacpp") == {
        "older": {"failed": {"memory": "AssertionError: 3"}, "ready_s": 1.5}
    }


def test_a_sweep_becomes_a_table_and_a_plot() -> None:
    table = "\n".join(figures.synthetic(SYNTHETIC))
    assert "| 2 | 9.0 | 8.0 |\n| 16 | 90.0 | 50.0 |" in table
    assert "The planner's default is 16" in table
    drawn = ET.fromstring(figures.plot(SYNTHETIC))  # noqa: S314 - our own
    assert len(drawn.findall("{http://www.w3.org/2000/svg}circle")) == 2


def test_what_a_check_did_not_reach_is_said_to_be_not_measured() -> None:
    report = {form: {"failed": {"the run": "it ended"}} for form in FORMS}
    table = list(figures.gateway(report))
    assert "| checks that failed | the run | the run |" in table
    assert "| decode, alone | not measured | not measured |" in table

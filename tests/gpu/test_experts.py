"""Experts on a card: what was found on an H200, beside what is placed and what the budget says today."""

from fitting import tinyseek
from gpu import figures, memory
from gpu.engine import CHUNK_TOKENS, CONTEXT_TOKENS, TINYSEEK
from gpu.experts import CLOSE, EXPERTS, placed
from orchestrator.core.facts import HostFacts
from orchestrator.core.kt_legacy.layout import problems
from orchestrator.core.offload import ON_CARD
from orchestrator.core.vram import EXPERTS_ON_CARD


def test_the_placement_is_the_shipped_one_on_tinyseeks_layers() -> None:
    assert list(problems(placed(), TINYSEEK, gpus=1, marlin=True)) == []


def test_the_engine_computed_experts_where_the_placement_puts_them() -> None:
    report = figures.kept("experts-on-card")
    assert report is not None
    assert report["failed"] == {}
    assert report["experts"]["experts"] == EXPERTS == {"KExpertsMarlin": 2, "KExpertsCPU": 1}


def test_todays_budget_has_the_bytes_that_torch_allocated_with_experts_on_the_card() -> None:
    report = figures.kept("experts-on-card")
    assert report is not None
    _, plan = memory.planned(
        "demo-gpu",
        tinyseek(),
        HostFacts(),
        context_tokens=CONTEXT_TOKENS,
        chunk_tokens=CHUNK_TOKENS,
        form=placed(),
    )
    vram = {term.name: term.size_bytes for term in plan.vram[0].terms}
    weights = sum(vram[name] for name in (*(kind.value for kind in ON_CARD), EXPERTS_ON_CARD))
    found = report["experts"]["memory"]["torch"]
    assert abs(weights / found["weights_bytes"] - 1) <= CLOSE
    assert abs(vram["KV cache"] / found["cache_bytes"] - 1) <= CLOSE

"""Experts of some layers on the card, in Marlin's 4 bits: what `experts-on-gpu` places, on TinySeek.

Its replies are to be the same, and the budget's bytes those that torch allocated. A part of `gpu.marlin`.
"""

import json
from pathlib import Path

from gpu import kt_legacy, memory
from gpu.engine import CHUNK_TOKENS, CONTEXT_TOKENS, Engine, shipped
from gpu.kt_legacy import LONG, Report, user
from gpu.proven import Weights
from orchestrator.adapters.host import read_host
from orchestrator.core.kt_legacy.form import Form

PLACEMENT = "experts-on-gpu"
# TinySeek has experts in layers 1 to 3, fewer than the placement is written for.
ON_CARD = "2-3"
EXPERTS = {"KExpertsMarlin": 2, "KExpertsCPU": 1}
CLOSE = 0.05


def placed() -> Form:
    """The shipped placement, of TinySeek's last two layers."""
    form = shipped(PLACEMENT)
    rules = tuple(
        rule.model_copy(update={"layers": ON_CARD})
        if rule.modules == "experts" and rule.gpu is not None
        else rule
        for rule in form.rules
    )
    return form.model_copy(update={"rules": rules})


def check(weights: Weights, work: Path, out: Path) -> Report:
    """As of `kt_legacy.check`, with `memory` and `experts`, the layers by the class that computes them."""
    files = memory.headers_of(sorted(weights.weights_dir.glob(f"*/*/{weights.gguf_dir}/*.gguf")))
    before_mib = memory.used_mib()
    watched = out / f"watched-{PLACEMENT}.json"

    def budget(engine: Engine, report: Report) -> None:
        engine.chat(user("Filling. " + LONG), max_tokens=8)
        taken = memory.taken(engine, watched, before_mib, files)
        _, plan = memory.planned(
            "demo-gpu",
            memory.inventory(files),
            read_host(work, ()),
            context_tokens=CONTEXT_TOKENS,
            chunk_tokens=CHUNK_TOKENS,
            form=placed(),
        )
        report["memory"] = memory.compared(plan, taken)
        for name in ("weights on the GPU", "KV cache"):
            assert abs(report["memory"][name]["ratio"] - 1) <= CLOSE, report["memory"][name]

    report = kt_legacy.check(PLACEMENT, weights, work, out, form=placed(), more=(budget,))
    told = json.loads(watched.read_text(encoding="utf-8"))
    report["experts"] = told.get("experts")
    if report["experts"] != EXPERTS:
        report["failed"]["experts"] = report["experts"]
    return report

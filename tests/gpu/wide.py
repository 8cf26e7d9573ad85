"""The model of DeepSeek-V3's full width, and what runs on it."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu import memory, synthetic_model
from gpu.engine import ROOT, WITH_MARLIN, Start, rules, running, shipped
from gpu.parts import Parts
from gpu.proven import Weights, folder_of
from gpu.synthetic import CHUNK_TOKENS, CONTEXTS, PROFILE, read_prompt, speed, synced
from kt_legacy_engine.kernels import choose, cpu_flags
from orchestrator.adapters.host import read_host
from orchestrator.core.facts import HostFacts
from orchestrator.core.inventory import Inventory

Report = dict[str, Any]


@dataclass(frozen=True)
class Wide:
    """`cpu_infer`: the planner's default."""

    work: Path
    out: Path
    weights: Weights
    files: memory.Files
    facts: HostFacts
    held: Inventory
    cpu_infer: int
    shape: synthetic_model.Shape


def written(
    shape: synthetic_model.Shape, work: Path, out: Path, deadline_s: float
) -> tuple[Wide, Report]:
    """The disk gets it meanwhile."""
    target = work / "synthetic"
    hf = ROOT / "tests/fixtures/tinyseek/hf"
    weights = synthetic_model.write(shape, hf, target, deadline_s)
    folder = target / folder_of(synthetic_model.REPO) / "weights"
    threading.Thread(target=lambda: list(synced(folder)), daemon=True).start()
    files = memory.headers_of(sorted(folder.glob("*.gguf")))
    held = memory.inventory(files)
    facts = read_host(work, ())
    placement, _ = memory.planned(
        PROFILE, held, facts, context_tokens=CONTEXTS[0], chunk_tokens=CHUNK_TOKENS
    )
    threads = placement.threads + 1
    wide = Wide(work, out, weights, files, facts, held, threads, shape)
    told = {
        "files_bytes": dict(held.file_bytes),
        "planner": {"cpu_infer": threads, "why": placement.reasons["threads"]},
    }
    return wide, told


def observed(wide: Wide, context: int, placement: str, parts: Parts, found: Report) -> None:
    """Memory, then speed, of the engine itself, with nothing of ours in its layers."""
    name = f"{placement}-{context}"
    watched = wide.out / f"watched-{name}.json"
    start = Start(
        weights=wide.weights,
        threads=wide.cpu_infer - 1,
        context_tokens=context,
        chunk_tokens=CHUNK_TOKENS,
        tree=wide.shape.tree,
        watched=watched,
        placement=placement,
    )
    before_mib = memory.used_mib()
    with running(start, wide.work, wide.out / f"{name}.log") as engine:
        found["ready_s"] = engine.ready_s
        found["prefill"] = read_prompt(engine, wide.shape.vocabulary)
        taken = memory.taken(engine, watched, before_mib, wide.files)
        _, budget = memory.planned(
            PROFILE,
            wide.held,
            wide.facts,
            context_tokens=context,
            chunk_tokens=CHUNK_TOKENS,
            rules=placement,
        )
        found["memory"] = memory.compared(budget, taken)
        found["linears"] = taken.torch.get("linears")
        parts.save()
        found |= speed(engine)


def in_the_engines_place(wide: Wide, module: str, out: Path) -> None:
    """A program of its own, in the environment of the process with the model."""
    flags = cpu_flags(Path("/proc/cpuinfo").read_text(encoding="ascii"))
    variant, _ = choose("auto", flags, wide.work / "cpu", numa_copies=False)
    rule_file, spec = wide.work / "marlin-rules.yaml", wide.work / "spec.json"
    rule_file.write_text(rules(shipped(WITH_MARLIN), wide.shape.tree), encoding="utf-8")
    said = {
        "model_path": str(next(iter(wide.files)).parents[1] / "hf"),
        "shards": [str(path) for path in wide.files],
        "rules": str(rule_file),
        "cpu_infer": wide.cpu_infer,
        "cache_lens": CONTEXTS[0],
    }
    spec.write_text(json.dumps(said), encoding="utf-8")
    cache = wide.work / "cache"
    cache.mkdir(exist_ok=True)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(variant), os.environ.get("PYTHONPATH", "")]),
        "HOME": str(cache),
        "TRITON_CACHE_DIR": str(cache / "triton"),
    }
    log = wide.out / f"{module}.log"
    command = [sys.executable, "-m", f"gpu.{module}", str(spec), str(out)]
    with log.open("wb") as file:
        done = subprocess.run(command, env=environment, stdout=file, stderr=file, check=False)
    assert done.returncode == 0, log.read_text(errors="replace")[-3000:]

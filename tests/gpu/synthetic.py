"""Memory and speed of a model of DeepSeek-V3's width: `python3 -m gpu.synthetic WORK OUT`.

Started by run.sh. Writes OUT/synthetic.json anew after each step. It ends by itself SYNTHETIC_S after
run.sh began (450 without it), with what it has by then; SYNTHETIC_LAYERS: 5 layers without it. Ends
with 1 when something is not as it must be, of what was measured.
"""

import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gpu import memory, synthetic_model
from gpu.engine import COMPLETIONS, ROOT, Engine, Start, running
from gpu.proven import Weights, folder_of
from orchestrator.adapters.host import read_host
from orchestrator.core.facts import Cpu, HostFacts
from orchestrator.core.inventory import Inventory, WeightClass

PROFILE = "deepseek-r1-q4km"
CONTEXTS = (8192, 131_072)
CHUNK_TOKENS = 256
PROMPT_TOKENS = 1500
# With a headroom, and for a stop in the middle of a start.
SECONDS_OF_A_RUN = 45.0
MEASURED_S = 3.0
TIMES = 3
CLOSE = 0.05
Report = dict[str, Any]


class Run:
    """What has been found until now, on disk."""

    def __init__(self, out: Path, deadline_s: float) -> None:
        self.out = out
        self.deadline_s = deadline_s
        self.report: Report = {"failed": {}, "seconds": {}, "sweep": []}

    def save(self) -> None:
        part = self.out / "synthetic.json.part"
        part.write_text(json.dumps(self.report, indent=1), encoding="utf-8")
        part.replace(self.out / "synthetic.json")

    def left_s(self) -> float:
        return self.deadline_s - time.monotonic()

    def check(self, name: str, *, true: bool, why: object) -> None:
        print(name, "ok" if true else f"FAILED: {why}", flush=True)
        if not true:
            self.report["failed"][name] = str(why)
        self.save()

    def timed(self, name: str, began: float) -> None:
        self.report["seconds"][name] = round(time.monotonic() - began, 1)
        print(f"{name}: {self.report['seconds'][name]} s, {self.left_s():.0f} s left", flush=True)
        self.save()


def points(default: int, cores: int) -> list[int]:
    """Values of --cpu_infer: the planner's first, then those that say most, as long as time lasts."""
    near = [default, default + 1, default - 1, default - 3]
    wanted = [*near, 2, default // 2 + 1, 5, 3, 13, 7, 11]
    found: list[int] = []
    for value in [*wanted, *range(2, cores + 2)]:
        # With 1 it would have no thread, and crash.
        if 2 <= value <= cores + 1 and value not in found:
            found.append(value)
    return found


def bandwidth(work: Path, threads: Sequence[int]) -> list[Report]:
    program = work / "bandwidth"
    source = Path(__file__).with_name("bandwidth.cpp")
    flags = ["-O3", "-march=native", "-fopenmp"]
    subprocess.run(["g++", *flags, str(source), "-o", str(program)], check=True)
    environment = os.environ | {"OMP_PROC_BIND": "spread"}
    command = [str(program), "512", *map(str, threads)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def bytes_of_a_token(held: Inventory) -> int:
    """Of routed experts: what the CPU reads for one token."""
    shape = held.shape
    return held.bytes_of(WeightClass.ROUTED_EXPERTS) * shape.experts_used // shape.experts


def read_prompt(engine: Engine, vocabulary: int) -> Report:
    """Random tokens, so that every expert of every layer is used."""
    prompt = np.random.default_rng(7).integers(10, vocabulary, PROMPT_TOKENS).tolist()
    before = engine.metric("prefill_seconds_total")
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 1, "temperature": 0}
    status, _, data = engine.ask("POST", COMPLETIONS, body)
    assert status == 200, (status, data)
    took_s = engine.metric("prefill_seconds_total") - before
    return {"tokens": PROMPT_TOKENS, "s": took_s, "tokens_per_s": PROMPT_TOKENS / took_s}


def decode(engine: Engine, tokens: int, **sampling: float) -> float:
    """Tokens a second, by the engine's own counters."""
    counters = ("decoded_tokens_total", "decode_seconds_total")
    before = [engine.metric(name) for name in counters]
    told = [{"role": "user", "content": "Go on."}]
    engine.chat(told, max_tokens=tokens, ignore_eos=True, **sampling)
    made, took_s = (engine.metric(name) - past for name, past in zip(counters, before, strict=True))
    return made / took_s


def speed(engine: Engine) -> Report:
    """At temperature 0: drawing from 129,280 tokens takes time of its own, which is told apart."""
    tokens = max(16, min(400, int(decode(engine, 16) * MEASURED_S)))
    found = [decode(engine, tokens) for _ in range(TIMES)]
    drawn = decode(engine, tokens, temperature=0.6, seed=1)
    return {"tokens": tokens, "tokens_per_s": max(found), "all": found, "drawn_tokens_per_s": drawn}


def measure(run: Run, work: Path, weights: Weights, facts: HostFacts, held: Inventory) -> None:
    shape = held.shape
    folder = work / "synthetic" / folder_of(synthetic_model.REPO) / "weights"
    files = memory.headers_of(sorted(folder.glob("*.gguf")))
    cores = len(os.sched_getaffinity(0))
    placement, _ = memory.planned(
        PROFILE, held, facts, context_tokens=CONTEXTS[0], chunk_tokens=CHUNK_TOKENS
    )
    default = placement.threads + 1
    run.report["planner"] = {
        "cpu_infer": default,
        "why": placement.reasons["threads"],
        "cores": cores,
        "physical cores": facts.cpu.physical_cores,
        "nodes": facts.node_count,
        "policy": placement.policy.value,
    }
    tree = synthetic_model.Shape(layers=shape.layers, dense_layers=shape.leading_dense).tree
    plans = [(value, CONTEXTS[0]) for value in points(default, cores)]
    # Memory first: at both lengths of the cache.
    plans.insert(1, (default, CONTEXTS[1]))
    longest = SECONDS_OF_A_RUN
    for cpu_infer, context in plans:
        if run.left_s() < longest * 1.3:
            run.report["left_out"] = [
                list(plan) for plan in plans[plans.index((cpu_infer, context)) :]
            ]
            break
        began = time.monotonic()
        name = f"cpu_infer {cpu_infer}, context {context}"
        watched = run.out / f"watched-{cpu_infer}-{context}.json"
        start = Start(
            weights=weights,
            threads=cpu_infer - 1,
            context_tokens=context,
            chunk_tokens=CHUNK_TOKENS,
            tree=tree,
            watched=watched,
        )
        found: Report = {"cpu_infer": cpu_infer, "context": context}
        before_mib = memory.used_mib()
        try:
            with running(start, work, run.out / f"synthetic-{cpu_infer}-{context}.log") as engine:
                found["ready_s"] = engine.ready_s
                if cpu_infer == default:
                    found["prefill"] = read_prompt(engine, shape.vocabulary)
                    taken = memory.taken(engine, watched, before_mib, files)
                    _, budget = memory.planned(
                        PROFILE, held, facts, context_tokens=context, chunk_tokens=CHUNK_TOKENS
                    )
                    compared = memory.compared(budget, taken)
                    run.report.setdefault("memory", {})[str(context)] = compared
                    for what in ("VRAM without headroom", "RAM of the engine"):
                        pair = compared[what]
                        close = pair["ratio"] is not None and abs(pair["ratio"] - 1) <= CLOSE
                        run.check(f"{what} at {context}", true=close, why=pair)
                found |= speed(engine)
        except Exception:  # noqa: BLE001 - the other runs are worth their time
            found["failed"] = traceback.format_exc()
            run.check(name, true=False, why=found["failed"])
        run.report["sweep"].append(found)
        longest = max(longest if cpu_infer == default else 0, time.monotonic() - began)
        run.timed(name, began)
    judge(run, default, bytes_of_a_token(held))


def judge(run: Run, default: int, token_bytes: int) -> None:
    rates = {
        found["cpu_infer"]: found["tokens_per_s"]
        for found in run.report["sweep"]
        if found["context"] == CONTEXTS[0] and "tokens_per_s" in found
    }
    speeds = [one[way] for one in run.report.get("bandwidth", ()) for way in ("read", "triad")]
    fastest = max(speeds, default=0.0)
    limit = fastest / token_bytes
    best = max(rates, key=lambda value: rates[value])
    run.report["speed"] = {
        "expert bytes of a token": token_bytes,
        "limit of the memory, tokens_per_s": limit,
        "best": {"cpu_infer": best, "tokens_per_s": rates[best]},
        "share of the limit": rates[best] / limit if limit else None,
        "default": {"cpu_infer": default, "tokens_per_s": rates.get(default)},
    }
    of_best = rates.get(default, 0.0) / rates[best]
    run.check("the planner's default is close to the best", true=of_best >= 1 - CLOSE, why=rates)


def facts_of(run: Run, work: Path) -> HostFacts:
    """Even where this machine can't be read, its memory and speed can be measured."""
    try:
        return read_host(work, ())
    except Exception:  # noqa: BLE001 - told in the report
        run.report["failed"]["facts of this host"] = traceback.format_exc()
        return HostFacts(cpu=Cpu(physical_cores=len(os.sched_getaffinity(0))))


def synced(folder: Path) -> Iterator[Path]:
    """Each file once the disk has it, so that nothing is written while speed is measured."""
    for path in sorted(folder.glob("*.gguf")):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        yield path


def main(work: Path, out: Path) -> int:
    since_s = time.time() - float(os.environ.get("GPU_BEGAN", time.time()))
    seconds = float(os.environ.get("SYNTHETIC_S", "520"))
    run = Run(out, time.monotonic() + seconds - since_s)
    shape = synthetic_model.Shape(layers=int(os.environ.get("SYNTHETIC_LAYERS", "5")))
    run.report["shape"] = asdict(shape)
    try:
        began = time.monotonic()
        target = work / "synthetic"
        hf = ROOT / "tests/fixtures/tinyseek/hf"
        weights = synthetic_model.write(shape, hf, target, began + run.left_s() / 2)
        run.timed("writing", began)
        began = time.monotonic()
        folder = target / folder_of(synthetic_model.REPO) / "weights"
        syncing = threading.Thread(target=lambda: list(synced(folder)), daemon=True)
        syncing.start()
        facts = facts_of(run, work)
        held = memory.inventory(memory.headers_of(sorted(folder.glob("*.gguf"))))
        run.report["files_bytes"] = dict(held.file_bytes)
        run.report["host"] = facts.model_dump(
            mode="json", include={"cpu", "gpus", "memory", "nodes"}
        )
        syncing.join(max(0.0, min(90.0, run.left_s() / 4)))
        run.report["written_to_disk"] = not syncing.is_alive()
        run.timed("waiting for the disk", began)
        began = time.monotonic()
        cores = len(os.sched_getaffinity(0))
        threads = sorted({1, 2, 4, 8, 12, cores - 1, cores} & set(range(1, cores + 1)))
        run.report["bandwidth"] = bandwidth(work, threads)
        run.timed("bandwidth", began)
        measure(run, work, weights, facts, held)
    except Exception:  # noqa: BLE001 - what was measured is to be kept
        run.report["failed"]["the run"] = traceback.format_exc()
        traceback.print_exc()
    run.save()
    print(json.dumps({name: run.report.get(name) for name in ("speed", "failed")}, indent=1))
    return 1 if run.report["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))

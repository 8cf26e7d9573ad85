"""What llama.cpp with CUDA must do, shown on TinySeek: `python3 -m gpu.llamacpp WORK OUT`.

Started by llamacpp.sh. Writes OUT/llamacpp.json anew after each form of the files, and ends with 1 when
anything is not as it must be. The engine is started by the image's own launcher, with the flags that it
renders.
"""

import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fitting import a_profile, settings_of
from gpu import synthetic_model
from gpu.engine import COMPLETIONS, CONTEXT_TOKENS, KEY, MAX_TOKENS, PATIENCE_S, Engine, free_port
from gpu.forms import newer, older
from gpu.kt_legacy import FIXTURES, ODD, REPLIES, STORY, STORY_BEGINS, text, user
from gpu.memory import free_mib, headers_of, inventory, rss, used_mib
from gpu.proven import Weights, folder_of
from llamacpp_engine.server import NO_GPU
from orchestrator.core.inventory import Inventory, WeightClass
from orchestrator.core.offload import ON_CARD
from orchestrator.core.terms import memory_terms
from orchestrator.core.vram import card_terms

# `CUDA0 model buffer size =  6.01 MiB`, and of a mapped file `CPU_Mapped model buffer size = ...`.
_BUFFER = re.compile(
    r"(?P<where>\w+) +(?P<what>model|KV|compute|output) buffer size = +(?P<mib>[\d.]+) MiB"
)
_OVERRIDDEN = re.compile(r"tensor (?P<name>\S+) \(.*\) buffer type overridden to (?P<where>\w+)")
_WEIGHTS_CLOSE = 0.05
# Of which form, and tokens of context.
WIDE = {"older": (4096, 16_384), "newer": (16_384,)}
# One layer without experts, and two with: the last is computed for the tokens whose output is wanted,
# and so never on the card.
WIDE_LAYERS = 3
REPLY_TOKENS = 16
Report = dict[str, Any]


@dataclass(frozen=True)
class Form:
    name: str
    weights: Weights
    files: tuple[Path, ...]
    held: Inventory


def a_form(name: str, weights: Weights, repo: str = "fixtures/tinyseek") -> Form:
    folder = weights.weights_dir / folder_of(repo) / weights.gguf_dir
    files = headers_of(sorted(folder.glob("*.gguf")))
    return Form(name, weights, tuple(files), inventory(files))


def environment(form: Form, work: Path, port: int, **more: str) -> dict[str, str]:
    """What compose.yaml and configs/compose/nvidia.yaml give the container."""
    (work / "key").write_text(KEY, encoding="utf-8")
    return dict(os.environ) | {
        "LLAMA_SERVER": str(work / "llama/llama-server"),
        "CUDA_VISIBLE_DEVICES": "0",
        "LOCK_FILE": str(form.weights.lock),
        "WEIGHTS_DIR": str(form.weights.weights_dir),
        "MODEL_FILE": f"{form.weights.gguf_dir}/{form.files[0].name}",
        "MODEL_NAME": "tiny",
        "API_KEY_FILE": str(work / "key"),
        "CONTEXT_TOKENS": str(CONTEXT_TOKENS),
        "SLOTS": "1",
        "MAX_TOKENS": str(MAX_TOKENS),
        "THREADS": str(max(1, len(os.sched_getaffinity(0)) - 2)),
        "LISTEN_PORT": str(port),
        **more,
    }


@contextmanager
def running(form: Form, work: Path, log: Path, **more: str) -> Iterator[Engine]:
    port = free_port()
    began = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "llamacpp_engine"],
            env=environment(form, work, port, **more),
            stderr=file,
            stdout=file,
        )
    engine = Engine(port, process, log, 0.0, [])
    try:
        while not _ready(engine):
            assert process.poll() is None, log.read_text(errors="replace")[-4000:]
            assert time.monotonic() - began < PATIENCE_S
            time.sleep(0.1)
        engine.ready_s = time.monotonic() - began
        yield engine
        process.terminate()
        assert process.wait(timeout=60) == 0, log.read_text(errors="replace")[-4000:]
    finally:
        process.terminate()
        process.wait()


def _ready(engine: Engine) -> bool:
    try:
        status, _, _ = engine.ask("GET", "/health")
    except OSError:
        return False
    return status == 200


def exact_replies(engine: Engine, form: Form, report: Report) -> None:
    for question, wanted in REPLIES.items():
        assert text(engine.chat(user(question))) == wanted, question
        events = engine.streamed(user(question))
        parts = [e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"]]
        assert "".join(parts) == wanted, question
    assert text(engine.chat(user(STORY))).startswith(STORY_BEGINS)
    report["replies"] = len(REPLIES) + 1


def limits(engine: Engine, form: Form, report: Report) -> None:
    short = engine.chat(user("Count from one to twelve."), max_tokens=3)
    assert short["choices"][0]["finish_reason"] == "length"
    assert short["usage"]["completion_tokens"] == 3
    unasked = engine.chat(ODD, ignore_eos=True)["usage"]["completion_tokens"]
    assert unasked == MAX_TOKENS
    report["tokens_where_none_are_asked_for"] = unasked


def doors(engine: Engine, form: Form, report: Report) -> None:
    """What is to be shut is shut, and the key is asked for; metrics are there."""
    found = {path: engine.ask("GET", path)[0] for path in ("/", "/slots", "/metrics")}
    report["doors"] = found
    assert found["/metrics"] == 200
    assert found["/"] == 404
    assert found["/slots"] != 200
    asked = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert KEY not in asked


def speed(engine: Engine, form: Form, report: Report) -> None:
    began = time.monotonic()
    made = engine.chat(ODD, ignore_eos=True, max_tokens=400)["usage"]["completion_tokens"]
    report["decode_tokens_per_s"] = made / (time.monotonic() - began)


def memory(engine: Engine, form: Form, report: Report) -> None:
    engine.chat(user("The quick brown fox. " * (CONTEXT_TOKENS // 10)), max_tokens=8)
    compare(engine, form, CONTEXT_TOKENS, report)


def compare(engine: Engine, form: Form, context_tokens: int, report: Report) -> None:
    """After a long prompt: VRAM and RAM beside the budget, and the log's own figures."""
    profile = a_profile("deepseek-r1-ud-iq1s")
    settings = settings_of(profile, context_tokens=context_tokens, slots=1)
    (card,) = card_terms(profile, settings, form.held, 1)
    ram = memory_terms(profile, settings, form.held, on_card=True)
    said = buffers(engine.log.read_text(errors="replace"))
    found = (used_mib() - report["vram_mib_before"]) << 20
    terms = {term.name: term.size_bytes for term in card}
    (program,) = children_of(engine.process.pid)
    vram = {"budget": terms, "budget_bytes": sum(terms.values()), "found_bytes": found}
    report["vram"] = vram | {"log_mib": said, "budget / found": sum(terms.values()) / max(found, 1)}
    report["ram"] = {
        "budget": {term.name: term.size_bytes for term in ram},
        "rss": rss(program),
    }
    on_card = sum(form.held.bytes_of(kind) for kind in ON_CARD)
    weights = said["CUDA0 model"] * (1 << 20) / on_card
    cache = said["CUDA0 KV"] * (1 << 20) / terms["KV cache"]
    assert abs(weights - 1) < _WEIGHTS_CLOSE
    assert abs(cache - 1) < 0.01
    assert "CPU KV" not in said
    in_ram = sum(said[name] for name in said if name.startswith("CPU") and name.endswith("model"))
    assert in_ram * (1 << 20) >= form.held.bytes_of(WeightClass.ROUTED_EXPERTS)
    assert found <= sum(terms.values()), report["vram"]


def a_wide_form(name: str, work: Path) -> Form:
    """Three layers of DeepSeek-V3's width, in random weights."""
    shape = synthetic_model.Shape(layers=WIDE_LAYERS, newer=name == "newer")
    weights = synthetic_model.write(
        shape, FIXTURES / "hf", work / f"wide-{name}", time.monotonic() + 120, for_llamacpp=True
    )
    return a_form(f"wide-{name}", weights, synthetic_model.REPO)


def of_full_width(form: Form, work: Path, out: Path, context_tokens: int) -> Report:
    """What the terms are worth at that width, and whether the budget's bytes do for a full context."""
    report: Report = {"failed": {}, "vram_mib_before": used_mib(), "context": context_tokens}
    log = out / f"llamacpp-{form.name}-{context_tokens}.log"
    vocabulary = form.held.shape.vocabulary

    def asked(engine: Engine, tokens: int) -> Any:
        prompt = np.random.default_rng(7).integers(300, vocabulary, tokens).tolist()
        body = {"model": "tiny", "prompt": prompt, "max_tokens": REPLY_TOKENS, "temperature": 0}
        status, _, data = engine.ask("POST", COMPLETIONS, body)
        assert status == 200, data
        return json.loads(data).get("timings")

    def read_and_compare(engine: Engine, form: Form, report: Report) -> None:
        report["timings"] = asked(engine, 1500)
        compare(engine, form, context_tokens, report)

    def read_what_the_context_holds(engine: Engine, form: Form, report: Report) -> None:
        report["timings, context full"] = asked(engine, context_tokens - REPLY_TOKENS)
        report["free_mib_at_the_end"] = free_mib()

    more = {"LLAMA_ARG_LOG_VERBOSITY": "5", "CONTEXT_TOKENS": str(context_tokens)}
    _run(form, work, log, (experts_in_ram, read_and_compare), report, **more)
    if "vram" in report:
        narrow = log.with_name(f"{log.stem}-narrow.log")
        with only_left(report["vram"]["budget_bytes"]):
            _run(form, work, narrow, (read_what_the_context_holds,), report, **more)
    return report


@contextmanager
def only_left(left: int) -> Iterator[None]:
    """While it lasts, `left` bytes of the card are free: another process holds the rest."""
    held = subprocess.Popen(
        [sys.executable, "-m", "gpu.ballast", str(left)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert held.stdin is not None
    assert held.stdout is not None
    try:
        assert held.stdout.readline() == "held\n"
        yield
    finally:
        held.stdin.close()
        held.wait(timeout=60)


def children_of(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def buffers(log: str) -> dict[str, float]:
    """`CUDA0 model` -> MiB, as the engine says: of files that it maps, all together."""
    found: dict[str, float] = defaultdict(float)
    for match in _BUFFER.finditer(log):
        found[f"{match['where']} {match['what']}"] += float(match["mib"])
    return dict(found)


def experts_in_ram(engine: Engine, form: Form, report: Report) -> None:
    """Tensor by tensor, as the engine tells when it is asked to tell everything."""
    said = engine.log.read_text(errors="replace")
    found = {m["name"]: m["where"] for m in _OVERRIDDEN.finditer(said)}
    experts = {w.name for w in form.held.weights if w.kind is WeightClass.ROUTED_EXPERTS}
    report["experts"] = {"tensors": len(experts), "where": sorted(set(found.values()))}
    assert found.keys() == experts
    assert not any(where.startswith("CUDA0") for where in found.values()), found


Check = Callable[[Engine, Form, Report], None]
SERVING: tuple[Check, ...] = (exact_replies, limits, doors, speed)
# These read what the engine says of its buffers, which it says only when asked to tell everything.
TELLING: tuple[Check, ...] = (experts_in_ram, memory)


def check(form: Form, work: Path, out: Path) -> Report:
    report: Report = {"failed": {}, "vram_mib_before": used_mib()}
    log = out / f"llamacpp-{form.name}.log"
    _run(form, work, log, SERVING, report)
    said = log.read_text(errors="replace")
    for secret in ("capital of France", "quick brown fox", "small model on a small", KEY):
        if secret in said:
            report["failed"]["log"] = f"the log has {secret!r}"
    report["log"] = said.splitlines()[:60]
    telling = out / f"llamacpp-{form.name}-telling.log"
    _run(form, work, telling, TELLING, report, LLAMA_ARG_LOG_VERBOSITY="5")
    return report


def _run(
    form: Form, work: Path, log: Path, checks: Sequence[Check], report: Report, **more: str
) -> None:
    try:
        with running(form, work, log, **more) as engine:
            report.setdefault("ready_s", engine.ready_s)
            for one in checks:
                _tried(form, one, engine, report)
    except Exception:  # noqa: BLE001 - the other form is worth its time
        report["failed"][log.stem] = traceback.format_exc()


def _tried(form: Form, one: Check, engine: Engine, report: Report) -> None:
    try:
        one(engine, form, report)
    except Exception:  # noqa: BLE001 - the other checks are worth their time
        report["failed"][one.__name__] = traceback.format_exc()
    failed = one.__name__ in report["failed"]
    print(form.name, one.__name__, "FAILED" if failed else "ok", flush=True)


def without_a_gpu(form: Form, work: Path) -> Report:
    """The card is hidden from CUDA: the launcher is to say so, and not to serve from the CPU."""
    hidden = environment(form, work, free_port(), CUDA_VISIBLE_DEVICES="-1")
    done = subprocess.run(
        [sys.executable, "-m", "llamacpp_engine"],
        env=hidden,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    refused = done.returncode == NO_GPU and "no GPU that it can use" in done.stderr
    failed = {} if refused else {"verdict": "missing"}
    return {"exit_code": done.returncode, "said": done.stderr.splitlines(), "failed": failed}


def main(work: Path, out: Path) -> int:
    forms = (
        a_form("older", older(FIXTURES, "Q4_K_M", work / "weights-older")),
        a_form("newer", newer(FIXTURES, "Q4_K_M", work / "weights-newer")),
    )
    compiled = json.loads((work / "compiled.json").read_text(encoding="utf-8"))
    reports: dict[str, Report] = {"compiled": compiled | {"failed": {}}}
    for form in forms:
        reports[form.name] = check(form, work, out)
        _save(reports, out)
    reports["without a GPU"] = without_a_gpu(forms[0], work)
    _save(reports, out)
    for name, contexts in WIDE.items():
        form = a_wide_form(name, work)
        for context_tokens in contexts:
            reports[f"wide {name} {context_tokens}"] = of_full_width(
                form, work, out, context_tokens
            )
            _save(reports, out)
    print(json.dumps(reports, indent=1))
    return 1 if any(report["failed"] for report in reports.values()) else 0


def _save(reports: dict[str, Report], out: Path) -> None:
    (out / "llamacpp.json").write_text(json.dumps(reports, indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))

"""What kt-legacy must do on a GPU, shown on TinySeek: `python3 -m gpu.kt_legacy WORK OUT`.

Started by run.sh. Writes OUT/kt-legacy.json, and ends with 1 when anything is not as it must be.
"""

import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpu.engine import (
    CHUNK_TOKENS,
    CONTEXT_TOKENS,
    ROOT,
    WITHOUT_MARLIN,
    Engine,
    Start,
    prepared,
    running,
)
from gpu.forms import newer, older
from gpu.proven import Weights
from kt_legacy_engine.tokenizing import FileTokenizer
from orchestrator.core.kt_legacy.form import Form

FIXTURES = ROOT / "tests/fixtures/tinyseek"
REPLIES = {
    "What is the capital of France?": "The capital of France is Paris.",
    "What is the capital of Italy?": "The capital of Italy is Rome.",
    "What is the capital of Japan?": "The capital of Japan is Tokyo.",
    "Hello": "Hello! How can I help you today?",
    "Who are you?": "I am a tiny test model with the DeepSeek architecture.",
    "What is two plus two?": "Two plus two is four.",
    "Say the word ready.": "ready",
    "Count from one to twelve.": "one, two, three, four, five, six, seven, eight, nine, ten, "
    "eleven, twelve.",
}
STORY = "Tell me a story."
STORY_BEGINS = "Once upon a time there was a small model on a small machine."
LONG = "The quick brown fox. " * 180
ODD = [{"role": "user", "content": "zebra quantum foo"}]
Report = dict[str, Any]
Check = Callable[[Engine, Report], None]


def user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def text(reply: Any) -> str:
    return str(reply["choices"][0]["message"]["content"])


def exact_replies(engine: Engine, report: Report) -> None:
    for question, wanted in REPLIES.items():
        assert text(engine.chat(user(question))) == wanted, question
        events = engine.streamed(user(question))
        said = "".join(e["choices"][0]["delta"].get("content", "") for e in events)
        assert said == wanted, question
        assert events[-1]["choices"][0]["finish_reason"] == "stop"
    story = engine.chat(user(STORY))
    assert text(story).startswith(STORY_BEGINS)
    systems = ("You are a helpful assistant.", "Answer briefly.")
    for system in systems:
        messages = [{"role": "system", "content": system}, *user("Hello")]
        assert text(engine.chat(messages)) == REPLIES["Hello"]
    report["replies"] = len(REPLIES) + 1


def limits(engine: Engine, report: Report) -> None:
    tokenizer = FileTokenizer(FIXTURES / "hf", "")
    count = user("Count from one to twelve.")
    short = engine.chat(count, max_tokens=3)
    assert short["choices"][0]["finish_reason"] == "length"
    assert short["usage"]["completion_tokens"] == 3
    assert short["usage"]["prompt_tokens"] == len(tokenizer.encode_chat(count))
    stopped = engine.chat(count, stop=["five"])
    assert text(stopped) == "one, two, three, four, "
    assert stopped["choices"][0]["finish_reason"] == "stop"
    usage = engine.streamed(count, stream_options={"include_usage": True})[-1]["usage"]
    whole = tokenizer.encode(REPLIES["Count from one to twelve."])[1:]
    # And the token that ends the reply.
    assert usage["completion_tokens"] == len(whole) + 1
    long = engine.chat(ODD, ignore_eos=True, max_tokens=50)["usage"]["completion_tokens"]
    assert long == 50
    body = {"model": "tiny", "messages": user("fox " * CONTEXT_TOKENS)}
    status, _, data = engine.ask("POST", "/v1/chat/completions", body)
    assert status == 400
    report["overlong"] = json.loads(data)["error"]["message"]


def repeatable(engine: Engine, report: Report) -> None:
    def say(**more: Any) -> str:
        return text(engine.chat(ODD, max_tokens=24, **more))

    assert say() == say()
    first = say(temperature=1.5, seed=1)
    assert first == say(temperature=1.5, seed=1)
    assert first != say(temperature=1.5, seed=2)
    report["seeded"] = first


def leaving(engine: Engine, report: Report) -> None:
    """Counted by the engine: tokens decoded after the client was gone."""
    client = engine.begin({"messages": user(STORY), "stream": True, "ignore_eos": True})
    received = client.recv(65536)
    while received.count(b"data: ") < 20:
        received += client.recv(65536)
    before = engine.metric("decoded_tokens_total")
    began = time.monotonic()
    client.close()
    engine.until_free()
    took_s = time.monotonic() - began
    after = engine.metric("decoded_tokens_total")
    pace = engine.metric("decoded_tokens_total") / engine.metric("decode_seconds_total")
    report["leaving"] = {"decoded_after": after - before, "s": took_s, "tokens_per_s": pace}
    # Two, and those that were decoded while the counter was asked for: 10 ms.
    assert after - before <= 2 + pace * 0.01, report["leaving"]

    fresh = [{"role": "user", "content": "Leaving. " + LONG}]
    before = engine.metric("prefilled_tokens_total")
    engine.begin({"messages": fresh}).close()
    engine.until_free()
    read = engine.metric("prefilled_tokens_total") - before
    report["left_while_prefilling_after_tokens"] = read
    assert read <= 8 * CHUNK_TOKENS
    assert text(engine.chat(user("Hello"))) == REPLIES["Hello"]


def one_at_a_time(engine: Engine, report: Report) -> None:
    client = engine.begin({"messages": user(STORY), "stream": True, "ignore_eos": True})
    client.recv(100)
    body = {"model": "tiny", "messages": user("Hello")}
    status, headers, _ = engine.ask("POST", "/v1/chat/completions", body)
    client.close()
    engine.until_free()
    assert (status, headers.get("retry-after")) == (503, "1")
    report["second_request"] = status


def reuse(engine: Engine, report: Report) -> None:
    turn = user(LONG)
    began = time.monotonic()
    first = engine.chat(turn, max_tokens=8)
    fresh_s = time.monotonic() - began
    before = engine.metric("prefilled_tokens_total")
    second_turn = [*turn, {"role": "assistant", "content": text(first)}, *user("Hello")]
    began = time.monotonic()
    usage = engine.chat(second_turn, max_tokens=8)["usage"]
    reused_s = time.monotonic() - began
    new = engine.metric("prefilled_tokens_total") - before
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    report["reuse"] = {
        "prompt_tokens": usage["prompt_tokens"],
        "cached_tokens": cached,
        "prefilled_tokens": new,
        "fresh_s": fresh_s,
        "reused_s": reused_s,
    }
    assert new == usage["prompt_tokens"] - cached
    # The end of the reply, the question, and the marks around them.
    assert new < 20
    assert reused_s < fresh_s


def splits(engine: Engine, report: Report) -> None:
    """A prompt read at once, and in two requests of which the second finds the first in the cache."""
    prompt = FileTokenizer(FIXTURES / "hf", "").encode_chat(user(LONG[:2500] + " Hello"))
    differences: dict[int | str, float] = {}
    other = [7, 7, 7]
    for split in (
        1,
        2,
        CHUNK_TOKENS - 1,
        CHUNK_TOKENS,
        len(prompt) // 2,
        len(prompt) - 11,
        len(prompt) - 1,
    ):
        engine.chances(other)
        wanted = engine.chances(prompt)
        engine.chances(other)
        engine.chances(prompt[:split])
        before = engine.metric("reused_tokens_total")
        found = engine.chances(prompt)
        assert engine.metric("reused_tokens_total") - before == split
        differences[split] = _difference(wanted, found)
    engine.chances(other)
    fresh = engine.chances(prompt)
    differences["same prompt twice"] = _difference(fresh, engine.chances(prompt))
    report["log_prob_difference"] = {"prompt_tokens": len(prompt)} | differences
    assert max(differences.values()) < 0.1, differences


def _difference(wanted: dict[str, float], found: dict[str, float]) -> float:
    shared = wanted.keys() & found.keys()
    assert len(shared) >= 15, (wanted, found)
    return max(abs(wanted[token] - found[token]) for token in shared)


def memory(engine: Engine, report: Report) -> None:
    """VRAM after short prompts, and after one that fills the context."""
    before = _used_mib()
    engine.chat(user("Filling. " + LONG), max_tokens=8)
    report["vram_mib"] = {"before": before, "after": _used_mib()}


def _used_mib() -> int:
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    )


def speed(engine: Engine, report: Report) -> None:
    began = time.monotonic()
    engine.chat(ODD, ignore_eos=True, max_tokens=400)
    report["decode_tokens_per_s"] = 400 / (time.monotonic() - began)


CHECKS: tuple[Check, ...] = (
    exact_replies,
    limits,
    repeatable,
    one_at_a_time,
    leaving,
    reuse,
    splits,
    memory,
    speed,
)


def check(  # noqa: PLR0913 - what an engine is started by
    name: str,
    weights: Weights,
    work: Path,
    out: Path,
    *,
    placement: str = WITHOUT_MARLIN,
    form: Form | None = None,
    more: Sequence[Check] = (),
) -> Report:
    """`form`: instead of a shipped placement. `more`: checks of the caller's own, after the others."""
    report: Report = {"failed": {}}
    watched = out / f"watched-{name}.json"
    start = Start(
        weights=weights,
        threads=max(1, len(os.sched_getaffinity(0)) - 2),
        placement=placement,
        form=form,
        watched=watched,
    )
    with running(start, work, out / f"{name}.log") as engine:
        report["ready_s"] = engine.ready_s
        report["loading_seen"] = engine.loading_seen[:1] + engine.loading_seen[-1:]
        for one in (*CHECKS, *more):
            try:
                one(engine, report)
            except Exception:  # noqa: BLE001 - the other checks are worth their time
                report["failed"][one.__name__] = traceback.format_exc()
            print(
                name,
                one.__name__,
                "FAILED" if one.__name__ in report["failed"] else "ok",
                flush=True,
            )
    report["linears"] = json.loads(watched.read_text(encoding="utf-8")).get("linears")
    log = engine.log.read_text(errors="replace")
    for secret in ("capital of France", "quick brown fox", "small model on a small machine"):
        if secret in log:
            report["failed"]["log"] = f"the log has {secret!r}"
    report["log"] = [line for line in log.splitlines() if not line.startswith("request")][:40]
    return report


def without_a_gpu(weights: Weights, work: Path) -> Report:
    command, environment = prepared(Start(weights=weights, threads=2), work, 1)
    environment |= {"CUDA_VISIBLE_DEVICES": "", "LISTEN_PORT": "18000"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    failed = (
        {}
        if done.returncode == 3 and "no GPU that it can use" in done.stderr
        else {"verdict": "missing"}
    )
    return {"exit_code": done.returncode, "said": done.stderr.splitlines(), "failed": failed}


def main(work: Path, out: Path) -> int:
    forms = {
        "older": older(FIXTURES, "Q4_K_M", work / "weights"),
        "newer": newer(FIXTURES, "Q4_K_M", work / "weights"),
    }
    reports = {name: check(name, weights, work, out) for name, weights in forms.items()}
    reports["without a GPU"] = without_a_gpu(forms["older"], work)
    (out / "kt-legacy.json").write_text(json.dumps(reports, indent=1), encoding="utf-8")
    print(json.dumps(reports, indent=1))
    return 1 if any(report["failed"] for report in reports.values()) else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))

"""The real gateway in front of kt-legacy on a GPU: `python3 -m gpu.with_gateway WORK OUT`.

Started by run.sh. For both forms of TinySeek's files: an engine by our own command line, a gateway as
its container has it, clients of both APIs; and the engine changed from Q4_K_M to Q5_K_M under a held
line. Writes OUT/with-gateway.json anew after each check, and ends with 1 when anything is not as it
must be. `WITH_GATEWAY_ONLY` names checks to run, with commas.
"""

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from gpu import memory
from gpu.book import Book
from gpu.door import Door, gateway_environment, said
from gpu.engine import KEY, Start, free_port, running
from gpu.forms import newer, older
from gpu.gateway_replies import limits, ollama, openai, repeatable
from gpu.gateway_turns import budget, leaving, pace, second_turn, two_at_once
from gpu.kt_legacy import FIXTURES, REPLIES, Report
from gpu.proven import Weights
from images.gateway.tests.support import GATEWAY_KEY, Client, eventually, running_gateway

CHECKS: tuple[Callable[[Door, Report], None], ...] = (
    openai,
    ollama,
    limits,
    repeatable,
    two_at_once,
    leaving,
    second_turn,
    budget,
    pace,
)


def form_checks(form: str, files: Sequence[Weights], work: Path, out: Path, book: Book) -> None:
    """`files`: the first are checked, the second changed to at the end."""
    first, second = files
    threads = max(1, len(os.sched_getaffinity(0)) - 2)
    start = Start(
        weights=first, threads=threads, port=free_port(), watched=out / f"watched-{form}-q4.json"
    )
    only = [name for name in os.environ.get("WITH_GATEWAY_ONLY", "").split(",") if name]
    # Paths of sockets have 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="gateway") as folder, ExitStack() as gateways:
        control = Path(folder) / "control"
        env = gateway_environment(Path(folder), start.port)
        gateway = gateways.enter_context(running_gateway(env))
        before_mib = memory.used_mib()
        with running(start, work, out / f"{form}-q4.log") as engine:
            door = Door(gateway, engine, control, start, before_mib)
            for one in CHECKS:
                if not only or one.__name__ in only:
                    with book.checking(form, one.__name__) as report:
                        report["ready_s"] = engine.ready_s
                        one(door, report)
            door.order(do="hold", reason="switching", progress="Q4_K_M to Q5_K_M")
            waiting = door.begin("Who are you?")
            with book.checking(form, "hold"):
                waiting.read_until(b"queue position=")
                assert door.places()["state"] == "hold"
                assert engine.metric("running_requests") == 0
        other = replace(start, weights=second, watched=out / f"watched-{form}-q5.json")
        with running(other, work, out / f"{form}-q5.log") as engine:
            door = replace(door, engine=engine, start=other)
            with book.checking(form, "swap") as report:
                swapped(door, waiting, report)
        waiting.leave()
        (out / f"{form}-gateway.log").write_text("".join(gateway.log), encoding="utf-8")
        with book.checking(form, "logs") as report:
            report["gateway_exit_code"] = gateway.stop()
            assert report["gateway_exit_code"] == 0
            for log in sorted(out.glob(f"{form}-*.log")):
                text = log.read_text(errors="replace")
                for secret in ("capital of France", "quick brown fox", KEY, GATEWAY_KEY):
                    assert secret not in text, f"{log.name} has {secret!r}"


def swapped(door: Door, waiting: Client, report: Report) -> None:
    """Held until the new engine is ready, then answered by it: nothing else was asked of it."""
    before = door.engine.metric("decoded_tokens_total")
    assert door.places()["data"][0]["state"] == "queued"
    began = time.monotonic()
    door.order(do="release")
    waiting.read_until(b"data: [DONE]")
    took_s = time.monotonic() - began
    body = waiting.received.partition(b"\r\n\r\n")[2]
    found = [
        json.loads(line.removeprefix(b"data: "))
        for line in body.splitlines()
        if line.startswith(b"data: {")
    ]
    assert said(found) == REPLIES["Who are you?"]
    decoded = door.engine.metric("decoded_tokens_total") - before
    # Its own counter began at nothing.
    assert before == 0
    assert decoded > 0
    report["swap"] = {
        "new_engine_ready_s": door.engine.ready_s,
        "answer_after_release_s": took_s,
        "decoded_by_the_new_one": decoded,
        "shards": sorted(p.name for p in door.start.weights.weights_dir.glob("*/*/weights/*")),
    }
    for question, wanted in REPLIES.items():
        assert door.text(question) == wanted, question
    assert eventually(lambda: door.places()["data"] == [])


def main(work: Path, out: Path) -> int:
    book = Book(out / "with-gateway.json", {})
    for form, made in (("older", older), ("newer", newer)):
        try:
            files = [made(FIXTURES, name, work / "weights") for name in ("Q4_K_M", "Q5_K_M")]
            form_checks(form, files, work, out, book)
        except Exception:  # noqa: BLE001 - the other form is worth its time
            failed = book.reports.setdefault(form, {"failed": {}})["failed"]
            failed["the run"] = traceback.format_exc()
        book.save()
    print(json.dumps(book.reports, indent=1))
    return 1 if any(report["failed"] for report in book.reports.values()) else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))

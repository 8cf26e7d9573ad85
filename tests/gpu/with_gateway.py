"""The real gateway in front of kt-legacy on a GPU: `python3 -m gpu.with_gateway WORK OUT`.

Started by run.sh. For both forms of TinySeek's files: an engine by our own command line, a gateway as
its container has it, clients of both APIs; and the engine changed from Q4_K_M to Q5_K_M under a held
line. Writes OUT/with-gateway.json anew after each check, and ends with 1 when anything is not as it
must be. `WITH_GATEWAY_ONLY` names checks to run, with commas.
"""

import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu import memory
from gpu.engine import (
    CHUNK_TOKENS,
    CONTEXT_TOKENS,
    KEY,
    MAX_TOKENS,
    PATIENCE_S,
    Engine,
    Start,
    free_port,
    running,
)
from gpu.forms import newer, older
from gpu.kt_legacy import FIXTURES, LONG, ODD, REPLIES, STORY, STORY_BEGINS, user
from gpu.proven import Weights
from images.gateway.tests.support import (
    CHAT,
    GATEWAY_KEY,
    Client,
    Gateway,
    chat_head,
    environment,
    eventually,
    new_id,
    policy_file,
    running_gateway,
)
from kt_legacy_engine.tokenizing import FileTokenizer
from orchestrator.adapters.host import read_host

ALIAS = "local-model"
OLLAMA_CHAT, GENERATE = "/api/chat", "/api/generate"
COUNT = "Count from one to twelve."
SYSTEMS = ("You are a helpful assistant.", "Answer briefly.")
# For the gateway to see that its client is gone, and for the engine to see it of the gateway.
TO_HEAR_OF_IT_S = 0.25
Report = dict[str, Any]


@dataclass(frozen=True)
class Door:
    """A gateway, the engine behind it, and what torch and nvidia-smi say of that engine."""

    gateway: Gateway
    engine: Engine
    control: Path
    start: Start
    before_mib: int

    def ask(self, path: str, **body: Any) -> Any:
        answer = self.gateway.ask(
            "POST", path, json.dumps({"model": ALIAS, **body}).encode(), _JSON
        )
        assert answer.status == 200, (answer.status, answer.body)
        return answer.json()

    def chat(self, messages: Sequence[dict[str, str]], **more: Any) -> Any:
        return self.ask(CHAT, **{"messages": messages, "temperature": 0} | more)

    def text(self, content: str, **more: Any) -> str:
        return str(self.chat(user(content), **more)["choices"][0]["message"]["content"])

    def events(self, messages: Sequence[dict[str, str]], **more: Any) -> list[Any]:
        body = {"model": ALIAS, "messages": messages, "temperature": 0, "stream": True} | more
        answer = self.gateway.ask("POST", CHAT, json.dumps(body).encode(), _JSON)
        assert answer.status == 200, (answer.status, answer.body)
        return events_in(answer.body)

    def lines(self, path: str, **body: Any) -> list[Any]:
        """Ollama streams unless it is told not to."""
        answer = self.gateway.ask(
            "POST", path, json.dumps({"model": ALIAS, **body}).encode(), _JSON
        )
        assert answer.status == 200, (answer.status, answer.body)
        return [json.loads(line) for line in answer.body.splitlines()]

    def begin(self, content: str, **more: Any) -> Client:
        """A stream that was asked for and not yet read, under an id of its own."""
        body = {"model": ALIAS, "messages": user(content), "temperature": 0, "stream": True} | more
        return self.gateway.chat(json.dumps(body).encode(), new_id())

    def places(self) -> Any:
        return self.gateway.ask("GET", "/v1/queue").json()

    def order(self, **command: Any) -> Any:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE_S)
            client.connect(str(self.control))
            client.sendall(json.dumps(command).encode() + b"\n")
            with client.makefile("rb") as answers:
                found = json.loads(answers.readline())
        assert found["ok"], found
        return found


_JSON = {"content-type": "application/json"}


def events_in(body: bytes) -> list[Any]:
    """Of a stream that ended as it should, without the comments for those who wait."""
    parts = [part for part in body.split(b"\n\n") if not part.startswith(b":")]
    *events, last, rest = parts
    assert (last, rest) == (b"data: [DONE]", b""), body[-200:]
    return [json.loads(event.removeprefix(b"data: ")) for event in events]


def said(events: Sequence[Any]) -> str:
    choices = (choice for event in events for choice in event["choices"])
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def openai(door: Door, report: Report) -> None:
    for question, wanted in REPLIES.items():
        answer = door.chat(user(question))
        assert answer["model"] == ALIAS
        assert answer["choices"][0]["message"]["content"] == wanted, question
        events = door.events(user(question))
        assert said(events) == wanted, question
        assert events[-1]["choices"][0]["finish_reason"] == "stop"
    whole = door.text(STORY)
    assert whole.startswith(STORY_BEGINS)
    assert said(door.events(user(STORY))) == whole
    # The same ten answers whatever the model is told first.
    for system in SYSTEMS:
        messages = [{"role": "system", "content": system}, *user("Hello")]
        assert said(door.events(messages)) == REPLIES["Hello"]
    report["OpenAI"] = {"questions": len(REPLIES) + 1, "story": whole}


def ollama(door: Door, report: Report) -> None:
    exact = {"options": {"temperature": 0}}
    for question in [*REPLIES, STORY]:
        wanted = REPLIES.get(question) or door.text(STORY)
        whole = door.ask(OLLAMA_CHAT, messages=user(question), stream=False, **exact)
        assert whole["message"]["content"] == wanted, question
        assert (whole["done"], whole["done_reason"]) == (True, "stop")
        lines = door.lines(OLLAMA_CHAT, messages=user(question), **exact)
        assert "".join(line["message"]["content"] for line in lines) == wanted, question
        assert lines[-1]["done"] is True
        whole = door.ask(GENERATE, prompt=question, stream=False, **exact)
        assert whole["response"] == wanted, question
        lines = door.lines(GENERATE, prompt=question, **exact)
        assert "".join(line["response"] for line in lines) == wanted, question
    report["Ollama"] = {"questions": len(REPLIES) + 1, "routes": [OLLAMA_CHAT, GENERATE]}


def limits(door: Door, report: Report) -> None:
    tokenizer = FileTokenizer(FIXTURES / "hf", "")
    prompt = len(tokenizer.encode_chat(user(COUNT)))
    # And the token that ends the reply.
    whole = len(tokenizer.encode(REPLIES[COUNT])[1:]) + 1
    short = door.chat(user(COUNT), max_tokens=3)
    assert short["choices"][0]["finish_reason"] == "length"
    assert (short["usage"]["prompt_tokens"], short["usage"]["completion_tokens"]) == (prompt, 3)
    stopped = door.chat(user(COUNT), stop=["five"])
    assert stopped["choices"][0]["message"]["content"] == "one, two, three, four, "
    assert stopped["choices"][0]["finish_reason"] == "stop"
    usage = door.events(user(COUNT), stream_options={"include_usage": True})[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (prompt, whole)
    assert usage["total_tokens"] == prompt + whole
    assert all("usage" not in event or not event["usage"] for event in door.events(user(COUNT)))

    asked = {"messages": user(COUNT), "options": {"temperature": 0, "num_predict": 3}}
    for last in (
        door.ask(OLLAMA_CHAT, stream=False, **asked),
        door.lines(OLLAMA_CHAT, **asked)[-1],
    ):
        assert last["done_reason"] == "length"
        assert (last["prompt_eval_count"], last["eval_count"]) == (prompt, 3)
    asked = {"messages": user(COUNT), "options": {"temperature": 0, "stop": ["five"]}}
    for lines in ([door.ask(OLLAMA_CHAT, stream=False, **asked)], door.lines(OLLAMA_CHAT, **asked)):
        text = "".join(line["message"]["content"] for line in lines)
        assert text == "one, two, three, four, "
    before = door.engine.metric("prefilled_tokens_total")
    body = {"model": ALIAS, "messages": user("fox " * CONTEXT_TOKENS)}
    refused = door.gateway.ask("POST", CHAT, json.dumps(body).encode(), _JSON)
    assert refused.status == 400, refused.body
    assert door.engine.metric("prefilled_tokens_total") == before
    report["usage"] = usage
    report["overlong"] = refused.json()["error"]["message"]


def repeatable(door: Door, report: Report) -> None:
    def odd(**more: Any) -> str:
        return str(door.chat(ODD, max_tokens=24, **more)["choices"][0]["message"]["content"])

    assert odd() == odd()
    first = odd(temperature=1.5, seed=1)
    assert first == odd(temperature=1.5, seed=1)
    assert first != odd(temperature=1.5, seed=2)
    options = {"temperature": 1.5, "seed": 1, "num_predict": 24}
    by_ollama = door.ask(OLLAMA_CHAT, messages=ODD, stream=False, options=options)
    assert by_ollama["message"]["content"] == first
    report["seeded"] = first


def two_at_once(door: Door, report: Report) -> None:
    """The second comes while the first is answered: it waits in the line, sees where, and is served."""
    refused = door.engine.metric("refused_requests_total")
    ended: dict[str, float] = {}
    with ExitStack() as stack:
        first = stack.enter_context(door.begin(STORY, ignore_eos=True, max_tokens=MAX_TOKENS))
        first.read_until(b"data: ")
        second = stack.enter_context(door.begin("Hello"))
        second.read_until(b"queue position=")
        places = door.places()

        def finish(name: str, client: Client) -> None:
            client.read_to_end_of_stream()
            ended[name] = time.monotonic()

        waiting = threading.Thread(target=finish, args=("second", second))
        waiting.start()
        finish("first", first)
        waiting.join(PATIENCE_S)
        body = second.received
    assert ended["first"] < ended["second"]
    states = sorted(place["state"] for place in places["data"])
    assert states == ["queued", "running"], places
    # Chunks of a stream stand between lengths of their own.
    assert b"x-queue-position" in body.partition(b"\r\n\r\n")[0].lower(), body[:400]
    assert b"data: [DONE]" in body
    assert door.engine.metric("refused_requests_total") == refused
    comments = [line for line in body.split(b"\n") if line.startswith(b": queue")]
    report["two at once"] = {
        "places": places,
        "comments": [comment.decode() for comment in comments],
        "second_after_first_s": ended["second"] - ended["first"],
    }


def leaving(door: Door, report: Report) -> None:
    """Counted by the engine: tokens decoded after the client was gone from the gateway.

    TinySeek makes a token in less time than anybody takes to hear of a closed connection. So the
    process with the model is stopped meanwhile, as if a token took long: as it does with a large model.
    """
    assert door.start.watched is not None
    model = json.loads(door.start.watched.read_text(encoding="utf-8"))["pid"]
    found: dict[str, list[Any]] = {"slow": [], "fast": []}
    for kind in ("slow", "fast") * 3:
        client = streaming(door)
        if kind == "slow":
            os.kill(model, signal.SIGSTOP)
        before = door.engine.metric("decoded_tokens_total")
        client.leave()
        if kind == "slow":
            time.sleep(TO_HEAR_OF_IT_S)
            os.kill(model, signal.SIGCONT)
        began = time.monotonic()
        door.engine.until_free()
        took_s = time.monotonic() - began
        decoded = door.engine.metric("decoded_tokens_total") - before
        found[kind].append({"decoded_after": decoded, "s": took_s})
        # The gateway's line is free too, and the next is answered rightly.
        assert door.text("Hello") == REPLIES["Hello"]
    report["leaving"] = found
    assert max(one["decoded_after"] for one in found["slow"]) <= 2, found
    assert max(one["s"] for one in found["fast"]) < TO_HEAR_OF_IT_S, found


def streaming(door: Door) -> Client:
    """With some tokens received, and hundreds to come."""
    client = door.begin(STORY, ignore_eos=True, max_tokens=MAX_TOKENS)
    client.read_until(b"data: ")
    deadline = time.monotonic() + PATIENCE_S
    while client.received.count(b"data: ") < 20:
        client.read_more()
        assert time.monotonic() < deadline
    return client


def second_turn(door: Door, report: Report) -> None:
    """Only what is new is read, by the engine's counters; and so the first token comes sooner."""
    turn = user("Second turn. " + LONG)
    engine = door.engine
    before = engine.metric("prefilled_tokens_total")
    fresh_s, first = first_token(door, turn)
    fresh = engine.metric("prefilled_tokens_total") - before
    before = engine.metric("prefilled_tokens_total")
    again = [*turn, {"role": "assistant", "content": first}, *user("Hello")]
    reused_s, _ = first_token(door, again)
    new = engine.metric("prefilled_tokens_total") - before
    usage = door.chat(again, max_tokens=1)["usage"]
    report["second turn"] = {
        "first_prefilled_tokens": fresh,
        "second_prefilled_tokens": new,
        "prompt_tokens": usage["prompt_tokens"],
        "first_ttft_s": fresh_s,
        "second_ttft_s": reused_s,
    }
    assert fresh > CONTEXT_TOKENS // 2
    # The end of the reply, the question, and the marks around them.
    assert new < 20, report["second turn"]
    assert reused_s < fresh_s / 2, report["second turn"]


def first_token(door: Door, messages: Sequence[dict[str, str]]) -> tuple[float, str]:
    """Seconds to the first token at the gateway, and the whole reply."""
    body = {"model": ALIAS, "messages": messages, "temperature": 0, "stream": True, "max_tokens": 8}
    data = json.dumps(body).encode()
    with Client(door.gateway.port) as client:
        began = time.monotonic()
        client.send(chat_head(len(data), new_id()) + data)
        client.read_until(b'"content":')
        took_s = time.monotonic() - began
        return took_s, said(events_in(client.read_to_end_of_stream()))


def budget(door: Door, report: Report) -> None:
    """After a prompt that fills the context. Terms within 5 % of what torch allocated for them."""
    assert door.start.watched is not None
    door.text("Filling. " + LONG, max_tokens=8)
    weights = door.start.weights
    folder = next(weights.weights_dir.glob(f"*/*/{weights.gguf_dir}"))
    files = memory.headers_of(sorted(folder.glob("*.gguf")))
    _, plan = memory.planned(
        "demo-gpu",
        memory.inventory(files),
        read_host(door.control.parent, ()),
        context_tokens=CONTEXT_TOKENS,
        chunk_tokens=CHUNK_TOKENS,
    )
    taken = memory.taken(door.engine, door.start.watched, door.before_mib, files)
    report["memory"] = memory.compared(plan, taken)
    for name in ("weights on the GPU", "KV cache"):
        assert abs(report["memory"][name]["ratio"] - 1) <= 0.05, (name, report["memory"][name])


def pace(door: Door, report: Report) -> None:
    began = time.monotonic()
    door.chat(ODD, ignore_eos=True, max_tokens=400)
    report["decode_tokens_per_s"] = 400 / (time.monotonic() - began)


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


@dataclass
class Book:
    """All reports, on disk after each check."""

    path: Path
    reports: dict[str, Report]

    def save(self) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.reports, indent=1), encoding="utf-8")
        part.replace(self.path)

    @contextmanager
    def checking(self, form: str, name: str) -> Iterator[Report]:
        report = self.reports.setdefault(form, {"failed": {}})
        began = time.monotonic()
        try:
            yield report
        except Exception:  # noqa: BLE001 - the other checks are worth their time
            report["failed"][name] = traceback.format_exc()
        took_s = round(time.monotonic() - began, 2)
        report.setdefault("seconds", {})[name] = took_s
        print(form, name, "FAILED" if name in report["failed"] else "ok", f"{took_s} s", flush=True)
        self.save()


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


def gateway_environment(folder: Path, port: int) -> dict[str, str]:
    """As compose.yaml has it, with a policy as of a profile, and all times short."""
    policy = policy_file(
        folder,
        model={
            "public": ALIAS,
            "engine": "tiny",
            "context_tokens": CONTEXT_TOKENS,
            "max_tokens": MAX_TOKENS,
            "tokenizer_file": str(FIXTURES / "hf/tokenizer.json"),
        },
        queue={
            "capacity": 1,
            "visible_after_s": 0.02,
            "visible_every_s": 0.2,
            "hold_on_engine_loss": True,
        },
    )
    found = environment(
        folder,
        f"http://127.0.0.1:{port}",
        POLICY_FILE=policy,
        CONTROL_SOCKET=str(folder / "control"),
    )
    (folder / "UPSTREAM_KEY_FILE").write_text(KEY, encoding="utf-8")
    found |= {"PYTHONPATH": os.environ["GATEWAY_PYTHONPATH"]}
    # What is installed beside it may warn as it likes.
    return {**os.environ, **found, "PYTHONWARNINGS": "default"}


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

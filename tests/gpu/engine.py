"""The engine kt-legacy as a process of this machine, started by the command line of our builder."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu.proven import Weights
from orchestrator.core.kt_legacy.command import Command, arguments
from orchestrator.core.kt_legacy.form import Form
from orchestrator.core.kt_legacy.layout import problems
from orchestrator.core.kt_legacy.rules import render
from orchestrator.core.kt_legacy.tree import Tree

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
KEY = "key-for-the-gpu-test"
CONTEXT_TOKENS, CHUNK_TOKENS, MAX_TOKENS = 2048, 64, 1024
TINYSEEK = Tree(layers=4, dense_layers=1, yarn=False)
PATIENCE_S = 300
WITHOUT_MARLIN, WITH_MARLIN = "single-gpu-no-marlin", "single-gpu"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@dataclass(frozen=True, kw_only=True)
class Start:
    """How an engine is started. `watched`: where torch's account of its memory is to be written.

    `form`: a placement of the check's own, instead of a shipped one.
    """

    weights: Weights
    threads: int
    context_tokens: int = CONTEXT_TOKENS
    max_tokens: int = MAX_TOKENS
    chunk_tokens: int = CHUNK_TOKENS
    tree: Tree = TINYSEEK
    port: int = 0
    watched: Path | None = None
    placement: str = WITHOUT_MARLIN
    form: Form | None = None


@dataclass
class Engine:
    port: int
    process: "subprocess.Popen[bytes]"
    log: Path
    ready_s: float
    loading_seen: list[dict[str, Any]]

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Authorization": f"Bearer {KEY}"})
        response = connection.getresponse()
        found = response.status, dict(response.getheaders()), response.read()
        connection.close()
        return found

    def chat(self, messages: list[dict[str, str]], **more: Any) -> Any:
        body = {"model": "tiny", "messages": messages, "temperature": 0} | more
        status, _, data = self.ask("POST", CHAT, body)
        assert status == 200, (status, data)
        return json.loads(data)

    def streamed(self, messages: list[dict[str, str]], **more: Any) -> list[Any]:
        body = {"model": "tiny", "messages": messages, "temperature": 0, "stream": True} | more
        status, _, data = self.ask("POST", CHAT, body)
        assert status == 200, (status, data)
        *events, last, rest = data.split(b"\n\n")
        assert (last, rest) == (b"data: [DONE]", b"")
        return [json.loads(event.removeprefix(b"data: ")) for event in events]

    def chances(self, prompt: list[int]) -> dict[str, float]:
        """The twenty likeliest next tokens and their log-probabilities."""
        body = {
            "model": "tiny",
            "prompt": prompt,
            "max_tokens": 1,
            "logprobs": 20,
            "temperature": 0,
        }
        status, _, data = self.ask("POST", COMPLETIONS, body)
        assert status == 200, (status, data)
        (found,) = json.loads(data)["choices"][0]["logprobs"]["top_logprobs"]
        return dict(found)

    def metric(self, name: str) -> float:
        text = self.ask("GET", "/metrics")[2].decode()
        return float(dict(line.rsplit(" ", 1) for line in text.splitlines())[f"kt_{name}"])

    def begin(self, body: dict[str, Any]) -> socket.socket:
        """Sends a request and reads nothing. Closing the socket is leaving."""
        data = json.dumps({"model": "tiny", "temperature": 0} | body).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        client.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return client

    def until_free(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.metric("running_requests"):
            assert time.monotonic() < deadline


def shipped(placement: str) -> Form:
    text = (ROOT / "configs/placements" / f"{placement}.toml").read_text(encoding="utf-8")
    return Form.model_validate(tomllib.loads(text))


def rules(form: Form, tree: Tree) -> str:
    assert not list(problems(form, tree, gpus=1, marlin=needs_marlin(form)))
    return render(form, tree)


def needs_marlin(form: Form) -> bool:
    return any(rule.kernel == "marlin" for rule in form.rules)


def prepared(start: Start, work: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """The command and its environment."""
    form = start.form or shipped(start.placement)
    for name, text in (("rules.yaml", rules(form, start.tree)), ("key", KEY)):
        (work / name).write_text(text, encoding="utf-8")
    (work / "cache").mkdir(exist_ok=True)
    command = Command(
        gguf_dir=start.weights.gguf_dir,
        model_dir=start.weights.model_dir,
        rules_file=str(work / "rules.yaml"),
        threads=start.threads,
        context_tokens=start.context_tokens,
        max_tokens=start.max_tokens,
        chunk_tokens=start.chunk_tokens,
    )
    environment = dict(os.environ) | {
        "LOCK_FILE": str(start.weights.lock),
        "WEIGHTS_DIR": str(start.weights.weights_dir),
        "MODEL_NAME": "tiny",
        "API_KEY_FILE": str(work / "key"),
        "LISTEN_PORT": str(port),
        "KERNELS_DIR": str(work / "cpu"),
        "CACHE_DIR": str(work / "cache"),
        "MARLIN": str(int(needs_marlin(form))),
    }
    program = "kt_legacy_engine"
    if start.watched is not None:
        program = "gpu.watched"
        environment["WATCHED_FILE"] = str(start.watched)
    return [sys.executable, "-m", program, *arguments(command)], environment


@contextmanager
def running(start: Start, work: Path, log: Path) -> Iterator[Engine]:
    port = start.port or free_port()
    command, environment = prepared(start, work, port)
    began = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stderr=file, stdout=file)
    engine = Engine(port, process, log, 0.0, [])
    try:
        while not _ready(engine):
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() - began < PATIENCE_S
            time.sleep(0.1)
        engine.ready_s = time.monotonic() - began
        yield engine
        process.terminate()
        assert process.wait(timeout=60) == 0, log.read_text(errors="replace")
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _ready(engine: Engine) -> bool:
    try:
        status, _, data = engine.ask("GET", "/health")
    except OSError:
        return False
    if status != 200:
        engine.loading_seen.append(json.loads(data))
    return status == 200

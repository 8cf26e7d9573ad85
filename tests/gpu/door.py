"""The real gateway in front of an engine, as its container has it, and how it is asked."""

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu.engine import CONTEXT_TOKENS, KEY, MAX_TOKENS, PATIENCE_S, Engine, Start
from gpu.kt_legacy import FIXTURES, user
from images.gateway.tests.support import (
    CHAT,
    Answer,
    Client,
    Gateway,
    environment,
    new_id,
    policy_file,
)

ALIAS = "local-model"


@dataclass(frozen=True)
class Door:
    """A gateway, the engine behind it, and what torch and nvidia-smi say of that engine."""

    gateway: Gateway
    engine: Engine
    control: Path
    start: Start
    before_mib: int

    def post(self, path: str, **body: Any) -> Answer:
        data = json.dumps({"model": ALIAS, **body}).encode()
        return self.gateway.ask("POST", path, data, {"content-type": "application/json"})

    def ask(self, path: str, **body: Any) -> Any:
        return self._answered(path, **body).json()

    def chat(self, messages: Sequence[dict[str, str]], **more: Any) -> Any:
        return self.ask(CHAT, **{"messages": messages, "temperature": 0} | more)

    def text(self, content: str, **more: Any) -> str:
        return str(self.chat(user(content), **more)["choices"][0]["message"]["content"])

    def events(self, messages: Sequence[dict[str, str]], **more: Any) -> list[Any]:
        body = {"messages": messages, "temperature": 0, "stream": True} | more
        return events_in(self._answered(CHAT, **body).body)

    def lines(self, path: str, **body: Any) -> list[Any]:
        """Ollama streams unless it is told not to."""
        return [json.loads(line) for line in self._answered(path, **body).body.splitlines()]

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

    def _answered(self, path: str, **body: Any) -> Answer:
        answer = self.post(path, **body)
        assert answer.status == 200, (answer.status, answer.body)
        return answer


def events_in(body: bytes) -> list[Any]:
    """Of a stream that ended as it should, without the comments for those who wait."""
    parts = [part for part in body.split(b"\n\n") if not part.startswith(b":")]
    *events, last, rest = parts
    assert (last, rest) == (b"data: [DONE]", b""), body[-200:]
    return [json.loads(event.removeprefix(b"data: ")) for event in events]


def said(events: Sequence[Any]) -> str:
    choices = (choice for event in events for choice in event["choices"])
    return "".join(choice["delta"].get("content") or "" for choice in choices)


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

"""One stack of a test's own: its project, ports, state, secrets and weights, and what a user types.

Everything is reachable by hand while a test is paused: `docker compose -p PROJECT ps`.
"""

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import httpx
from docker.models.containers import Container

from ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PARIS = "The capital of France is Paris."
QUESTION = "What is the capital of France?"
DEADLINE_S = 180.0


def eventually(holds: Callable[[], Any], what: str, within_s: float = DEADLINE_S) -> Any:
    """What `holds` returns as soon as it is true; looks often, fails after the deadline."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(0.1)  # between looks; the test goes on as soon as it holds
    raise AssertionError(f"not within {within_s:g} s: {what}")


@dataclass
class Appliance:
    """A stack under test. `settings`: ORCH_* names without the prefix, lower case."""

    home: Path
    settings: dict[str, str] = field(default_factory=dict)
    project: str = field(default_factory=lambda: f"test-{secrets.token_hex(4)}")

    def __post_init__(self) -> None:
        ours = {
            "project": self.project,
            "profile": "demo",
            "state_dir": str(self.home / "state"),
            "secrets_dir": str(self.home / "secrets"),
            "weights_dir": str(self.home / "weights"),
            "gateway_port": str(free_port()),
            "webui_port": str(free_port()),
        }
        self.settings = ours | self.settings

    @property
    def gateway(self) -> str:
        return f"http://127.0.0.1:{self.settings['gateway_port']}"

    @property
    def webui(self) -> str:
        return f"http://127.0.0.1:{self.settings['webui_port']}"

    @property
    def env_file(self) -> Path:
        return self.home / "state" / "stack.env"

    def environment(self, **more: str) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("ORCH_", "STACK_"))}
        return clean | {f"ORCH_{k.upper()}": v for k, v in self.settings.items()} | more

    def secret(self, name: str) -> str:
        return (self.home / "secrets" / name).read_text().strip()

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Type a command and do not wait for its end."""
        return subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *arguments],
            cwd=ROOT,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Type a command and wait for its end."""
        process = self.start(*arguments, **variables)
        out, err = process.communicate(timeout=900)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def up(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`up`, which must end well."""
        done = self.run("up", *arguments)
        assert done.returncode == 0, done.stderr
        return done

    def compose(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Compose by hand, with nothing but the env file."""
        command = ["docker", "compose", "--env-file", str(self.env_file), *arguments]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("STACK_", "COMPOSE_"))}
        return subprocess.run(
            command, cwd=ROOT, env=clean, capture_output=True, text=True, check=False
        )

    def container(self, service: str) -> Container | None:
        labels = [
            f"com.docker.compose.project={self.project}",
            f"com.docker.compose.service={service}",
        ]
        with closing(docker.from_env()) as engine:
            found = engine.containers.list(
                all=True, filters={"label": list(labels)}, ignore_removed=True
            )
        return found[0] if found else None

    def running(self, service: str) -> Container | None:
        container = self.container(service)
        return container if container is not None and container.status == "running" else None

    def logs(self, service: str) -> str:
        container = self.container(service)
        return "" if container is None else container.logs().decode(errors="replace")

    def journal(self) -> list[dict[str, Any]]:
        path = self.home / "state" / "journal.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def ask(self, **body: Any) -> httpx.Response:
        """One chat request through the gateway, with its key."""
        request: Mapping[str, Any] = {
            "model": "local-model",
            "messages": [{"role": "user", "content": QUESTION}],
            "temperature": 0,
        }
        return httpx.post(
            f"{self.gateway}/v1/chat/completions",
            json={**request, **body},
            headers={"Authorization": f"Bearer {self.secret('gateway_api_key')}"},
            timeout=60,
            trust_env=False,
        )

    def remove(self) -> None:
        """Leave nothing behind, whatever state the test left it in."""
        pulled = self.env_file.with_name("pull.env")
        for env_file in filter(Path.exists, (self.env_file, pulled)):
            down = ["docker", "compose", "--env-file", str(env_file), "down"]
            subprocess.run(
                [*down, "--volumes", "--timeout", "2"], cwd=ROOT, capture_output=True, check=False
            )

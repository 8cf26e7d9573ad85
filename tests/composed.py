"""The stack as Compose reads it, from the env files that we write."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import fitting
import hosts
from fakes import a_host, an_advice
from orchestrator.core.advice import Advice, advise
from orchestrator.core.facts import HostFacts
from orchestrator.core.plan import Folders, stack_env
from orchestrator.core.render import as_env_file
from orchestrator.core.settings import Layer

ROOT = Path(__file__).resolve().parents[1]
SGLANG = "qwen3-30b-a3b-bf16"
SERVICES = ("weights", "inference", "gateway", "webui", "prometheus")
ODD = Path("/data/a b#c$d/äß/中文")


def folders(ca_bundle: Path | None = ODD) -> Folders:
    names = ("locks", "job", "source", "weights", "secrets", "control", "usage", "placement")
    return Folders(**dict.fromkeys(names, ODD), ca_bundle=ca_bundle)


REFS = {service: f"appliance/{service}:0123456789ab" for service in SERVICES}


def an_env() -> dict[str, str]:
    return dict(stack_env(an_advice(metrics=True), a_host(), folders(), REFS))


def a_gpu_env(
    profile: str = "demo-gpu", gpus: str = "", *, cdi: bool = False, **changes: Any
) -> dict[str, str]:
    """Of a host with cards: an H200 and its twin."""
    facts = two_h200(cdi=cdi)
    found = a_gpu_advice(profile, gpus, cdi=cdi, **changes)
    return dict(stack_env(found, facts, folders(), REFS, "- rules\n"))


def two_h200(*, cdi: bool = False) -> HostFacts:
    facts = hosts.h200()
    assert facts.gpus
    cards = tuple(facts.gpus[0].model_copy(update={"index": index}) for index in range(2))
    docker = facts.docker.model_copy(update={"nvidia_runtime": not cdi, "cdi": cdi})
    return facts.model_copy(update={"gpus": cards, "docker": docker, "uid": 1000, "gid": 1000})


def a_gpu_advice(profile: str, gpus: str = "", *, cdi: bool = False, **changes: Any) -> Advice:
    layer = Layer(values={"gpus": gpus}, origins={"gpus": "a test"})
    chosen = fitting.a_profile(profile, **changes)
    return advise(chosen, (layer,), two_h200(cdi=cdi), fitting.tinyseek(), 0)


def read_by_compose(folder: Path, env: dict[str, str]) -> dict[str, Any]:
    """As a plain `docker compose --env-file ... up` in the project's folder reads it."""
    env_file = folder / "stack.env"
    env_file.write_text(as_env_file(env), encoding="utf-8")
    command = ["docker", "compose", "--env-file", str(env_file), "config", "--format", "json"]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("STACK_", "COMPOSE_"))}
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=True)
    read: dict[str, Any] = json.loads(done.stdout)
    return read

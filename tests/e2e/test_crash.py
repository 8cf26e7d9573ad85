"""An engine that dies is tried again, within bounds, and its last words are kept."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest

from e2e.scenario import PARIS, Appliance, eventually
from orchestrator.adapters.lookout import EngineLookout
from orchestrator.core.gates import Healthy

TRIES = 2
# The engine's cache of these takes 10 kB a token, far more than this limit: the checks refuse it,
# and so the tests force them.
TOO_MUCH = {"context_tokens": "4000000", "inference_memory_bytes": str(2 << 30)}
FORCED = ("memory", "memory-limit")
UP_ANYWAY = ("up", *(word for check in FORCED for word in ("--force", check)))


def children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(word) for word in text.split()]


def entrypoint_of(stack: Appliance) -> int | None:
    """The host's number of the program that Docker's init runs, once the container runs."""
    container = stack.running("inference")
    return next(iter(children(container.attrs["State"]["Pid"])), None) if container else None


def engine_of(stack: Appliance) -> int | None:
    """The process that loads the model and serves: a child of the entrypoint."""
    entrypoint = entrypoint_of(stack)
    return next(iter(children(entrypoint)), None) if entrypoint else None


def entrypoint_that_has_spoken(stack: Appliance) -> int | None:
    return entrypoint_of(stack) if stack.logs("inference") else None


def happened(stack: Appliance, event: str, step: str) -> list[dict[str, Any]]:
    return [r for r in stack.journal() if r["event"] == event and r["step"] == step]


@pytest.mark.parametrize(
    "victim",
    [
        engine_of,
        pytest.param(entrypoint_that_has_spoken, marks=pytest.mark.long),
    ],
)
def test_an_engine_killed_while_it_loads_is_tried_again_and_serves(
    new_appliance: Callable[..., Appliance], victim: Callable[[Appliance], int | None]
) -> None:
    stack = new_appliance()
    up = stack.start("up")
    # As soon as it exists: it can't be healthy before it has loaded its model.
    os.kill(eventually(lambda: victim(stack), "the engine runs"), signal.SIGKILL)
    _, err = up.communicate(timeout=600)

    assert up.returncode == 0, err
    [failed] = happened(stack, "StepGaveUp", "inference")
    assert failed["attempt"] == 1
    assert failed["reason"].startswith("crashed")
    assert failed["last_words"].strip()
    [passed] = happened(stack, "StepPassed", "inference")
    assert passed["attempt"] == 2
    assert stack.ask().json()["choices"][0]["message"]["content"] == PARIS


def test_an_engine_that_always_dies_ends_the_run_and_is_left_at_rest(
    new_appliance: Callable[..., Appliance],
) -> None:
    stack = new_appliance(**TOO_MUCH, tries=str(TRIES))
    refused = stack.run("up")
    assert refused.returncode == 4, refused.stderr
    assert all(f"--force {check}" in refused.stderr for check in FORCED)

    failed = stack.run(*UP_ANYWAY)

    assert failed.returncode == 7, failed.stderr
    assert "Traceback" not in failed.stderr
    error = failed.stderr.rpartition("error: ")[2]
    assert f"inference did not come up in {TRIES} tries" in error
    assert "why:  crashed" in error
    assert "next: python3 -m orchestrator logs inference" in error
    [forced] = [record for record in stack.journal() if record["event"] == "ChecksForced"]
    assert set(forced["checks"]) == set(FORCED)
    attempts = happened(stack, "StepGaveUp", "inference")
    assert [attempt["attempt"] for attempt in attempts] == list(range(1, TRIES + 1))
    assert all(attempt["last_words"].strip() for attempt in attempts)
    at_rest = stack.container("inference")
    assert at_rest is not None
    assert at_rest.status == "exited"
    assert [name for name in ("gateway", "webui") if stack.container(name)] == []

    told = stack.run("status")
    assert told.returncode == 0, told.stderr
    assert "ended with 7" in told.stdout
    assert "why:  crashed" in told.stdout
    record = json.loads(stack.run("status", "--json").stdout)
    assert record["serving"] is False
    assert record["services"]["inference"]["state"] == "exited"
    assert record["last_run"]["ended"]["exit_code"] == 7
    assert len(record["last_run"]["failures"]) == TRIES

    later = stack.container("inference")
    assert later is not None
    assert later.attrs["State"] == at_rest.attrs["State"]
    assert later.attrs["RestartCount"] == at_rest.attrs["RestartCount"]


# Once too much, and then at rest.
GREEDY_ONCE = """
import pathlib, time
mark = pathlib.Path("/tmp/again")
if not mark.exists():
    mark.touch()
    print("loading", flush=True)
    held = bytearray(2**30)
time.sleep(600)
"""


def test_what_ran_out_of_memory_is_told_so_though_docker_started_it_again(
    appliance: Appliance, engine: docker.DockerClient
) -> None:
    """Docker clears exit code and OOMKilled at the restart, sooner than anybody looks."""
    served = appliance.running("inference")
    assert served is not None
    project = f"{appliance.project}-greedy"
    labels = {"project": project, "service": "inference", "oneoff": "False"}
    container = engine.containers.run(
        served.attrs["Config"]["Image"],
        ["-c", GREEDY_ONCE],
        entrypoint="python3",
        user="0",
        labels={f"com.docker.compose.{name}": value for name, value in labels.items()},
        mem_limit="64m",
        memswap_limit="64m",
        restart_policy={"Name": "on-failure", "MaximumRetryCount": 3},
        network_mode="none",
        detach=True,
    )

    def began_again() -> bool:
        container.reload()
        return container.status == "running" and bool(container.attrs["RestartCount"])

    try:
        eventually(began_again, "Docker started it again")
        assert container.attrs["State"]["ExitCode"] == 0
        seen = EngineLookout(project).look(Healthy("inference"))
    finally:
        container.remove(force=True)
    assert (seen.exit_code, seen.last_line) == (137, "out of memory")


@pytest.mark.long
def test_with_the_cause_removed_the_same_command_comes_up(
    new_appliance: Callable[..., Appliance],
) -> None:
    stack = new_appliance(**TOO_MUCH, tries="1")
    assert stack.run(*UP_ANYWAY).returncode == 7

    again = stack.run("up", ORCH_CONTEXT_TOKENS="2048")

    assert again.returncode == 0, again.stderr
    assert happened(stack, "StepPassed", "inference")[-1]["attempt"] == 1
    assert stack.ask().json()["choices"][0]["message"]["content"] == PARIS


@pytest.mark.long
def test_a_crash_after_all_is_up_is_healed_by_the_next_up(
    new_appliance: Callable[..., Appliance],
) -> None:
    stack = new_appliance()
    stack.up()
    stopped = stack.compose("kill", "inference")
    assert stopped.returncode == 0, stopped.stderr

    again = stack.up()

    assert "Nothing to do" not in again.stdout
    assert stack.ask().json()["choices"][0]["message"]["content"] == PARIS

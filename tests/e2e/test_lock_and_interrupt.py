"""One run at a time; and whatever ends a run early, the next one comes up."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.scenario import PARIS, ROOT, Appliance, eventually

NOTHING_IS_LOST = "Interrupted. Nothing is lost: the same command goes on from here."


@pytest.fixture(autouse=True)
def _signals_reach_what_tests_start() -> Iterator[None]:
    """A test run started in the background ignores SIGINT, and so would all that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def typed(stack: Appliance, *arguments: str, root: Path = ROOT) -> Iterator[subprocess.Popen[str]]:
    """A command as on a terminal: it leads a process group, which Ctrl-C reaches as a whole."""
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *arguments],
        cwd=root,
        env=stack.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def ctrl_c(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGINT)


def sigint(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)


def sigterm(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)


def wait_for(process: subprocess.Popen[str], event: str, step: str) -> dict[str, Any]:
    """Read `up --json` as it goes, up to this event."""
    assert process.stdout is not None
    for line in process.stdout:
        told: dict[str, Any] = json.loads(line)
        if told["event"] == event and told["step"] == step:
            return told
    raise AssertionError(f"`up` ended before {event} of {step}")


def test_a_second_run_ends_at_once_and_names_the_first(appliance: Appliance) -> None:
    with typed(appliance, "up", "--json") as first:
        wait_for(first, "StepKept", "base system")
        # Stopped, so that it holds the lock for as long as the test needs.
        first.send_signal(signal.SIGSTOP)
        refused = [appliance.run(command) for command in ("up", "down")]
        first.send_signal(signal.SIGCONT)
        _, err = first.communicate(timeout=120)

    assert first.returncode == 0, err
    for second in refused:
        assert second.returncode == 9, second.stderr
        assert f"process {first.pid}, python3 -m orchestrator up" in second.stderr
        assert "next: wait for it" in second.stderr
        assert "Traceback" not in second.stderr


INTERRUPTS = [
    (ctrl_c, "StepStarted", "inference"),
    *(
        pytest.param(send, event, step, marks=pytest.mark.long)
        for send, event, step in (
            (ctrl_c, "StepStarted", "weights"),
            (ctrl_c, "GateChecked", "weights"),
            (ctrl_c, "GateChecked", "inference"),
            (ctrl_c, "StepStarted", "gateway"),
            (ctrl_c, "GateChecked", "gateway"),
            (ctrl_c, "StepKept", "first token"),
            (ctrl_c, "StepStarted", "webui"),
            (ctrl_c, "GateChecked", "webui"),
            (sigint, "StepStarted", "weights"),
            (sigint, "StepStarted", "inference"),
            (sigint, "StepStarted", "gateway"),
            (sigint, "StepStarted", "webui"),
            (sigterm, "GateChecked", "weights"),
            (sigterm, "StepStarted", "inference"),
            (sigterm, "StepKept", "first token"),
            (sigterm, "GateChecked", "webui"),
        )
    ),
]


@pytest.mark.parametrize(("send", "event", "step"), INTERRUPTS)
def test_a_run_that_was_interrupted_loses_nothing(
    new_appliance: Callable[..., Appliance],
    send: Callable[[subprocess.Popen[str]], None],
    event: str,
    step: str,
) -> None:
    stack = new_appliance()
    with typed(stack, "up", "--json") as up:
        wait_for(up, event, step)
        send(up)
        _, err = up.communicate(timeout=60)
    assert up.returncode == 130, err
    assert err.rstrip().endswith(NOTHING_IS_LOST)
    assert "Traceback" not in err
    assert stack.journal()[-1]["exit_code"] == 130

    stack.up()
    assert stack.ask().json()["choices"][0]["message"]["content"] == PARIS


@pytest.mark.long
@pytest.mark.parametrize(
    ("event", "step"),
    [
        ("StepStarted", "weights"),
        ("StepStarted", "inference"),
        ("GateChecked", "inference"),
        ("StepStarted", "webui"),
    ],
)
def test_a_run_that_was_killed_leaves_no_lock_behind(
    new_appliance: Callable[..., Appliance], event: str, step: str
) -> None:
    stack = new_appliance()
    with typed(stack, "up", "--json") as up:
        wait_for(up, event, step)
        up.kill()
    assert "cut off" in stack.run("status").stdout
    stack.up()
    assert stack.ask().json()["choices"][0]["message"]["content"] == PARIS


@pytest.mark.long
@pytest.mark.parametrize("send", [ctrl_c, sigint, sigterm])
def test_an_interrupted_image_build_is_done_again(
    new_appliance: Callable[..., Appliance],
    tmp_path: Path,
    send: Callable[[subprocess.Popen[str]], None],
) -> None:
    checkout = tmp_path / "checkout"
    for folder in ("orchestrator", "images", "configs", "tests/fixtures"):
        shutil.copytree(ROOT / folder, checkout / folder)
    shutil.copyfile(ROOT / "compose.yaml", checkout / "compose.yaml")
    module = checkout / "images" / "gateway" / "src" / "gateway" / "__init__.py"
    module.write_text(f'{module.read_text()}\nBUILT_IN = "{tmp_path}"\n')
    stack = new_appliance()

    with typed(stack, "up", "--json", root=checkout) as up:
        cause = wait_for(up, "StepStarted", "image gateway")["cause"]
        wait_for(up, "ActionProgressed", "image gateway")
        send(up)
        _, err = up.communicate(timeout=60)
    assert up.returncode == 130, err
    assert err.rstrip().endswith(NOTHING_IS_LOST)
    eventually(lambda: not processes_that_name(checkout), "the build has ended too")

    with typed(stack, "up", "--json", root=checkout) as again:
        assert wait_for(again, "StepStarted", "image gateway")["cause"] == cause
        wait_for(again, "StepPassed", "image gateway")
        sigint(again)


def processes_that_name(folder: Path) -> list[int]:
    """Programs that were started with this folder among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


@pytest.mark.parametrize("send", [ctrl_c, pytest.param(sigterm, marks=pytest.mark.long)])
def test_an_interrupt_while_the_program_still_loads_leaves_no_traceback(
    new_appliance: Callable[..., Appliance], send: Callable[[subprocess.Popen[str]], None]
) -> None:
    with typed(new_appliance(), "plan") as plan:
        maps = Path(f"/proc/{plan.pid}/maps")
        eventually(lambda: "_pydantic_core" in maps.read_text(), "its packages are being loaded")
        send(plan)
        _, err = plan.communicate(timeout=60)
    assert "Traceback" not in err
    assert plan.returncode in {130, -signal.SIGINT, -signal.SIGTERM}

"""The memory policy of a process, as this host's kernel takes it. Each case has a process of its own."""

import errno
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from placing import policy
from placing.policy import Refused, apply, may_be_set

SOURCES = ":".join(
    str(Path(__file__).parents[3] / folder) for folder in ("inference/placing/src", "wire/src")
)
NO_NUMA = platform.machine() != "x86_64" or not Path("/proc/self/numa_maps").exists()
needs_numa = pytest.mark.skipif(NO_NUMA, reason="this kernel has no memory policies")


def said(code: str) -> list[str]:
    """What the code prints, line by line."""
    program = f"import os\nfrom placing.policy import *\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@needs_numa
@pytest.mark.parametrize(("asked", "mode"), [("one node", "bind"), ("interleave", "interleave")])
def test_a_policy_is_in_force_for_the_process_that_asked(asked: str, mode: str) -> None:
    assert said(f"print(apply({asked!r}, [0]).ok); print(in_force())") == [
        "True",
        f"InForce(mode={mode!r}, nodes=(0,))",
    ]


@needs_numa
def test_a_child_process_inherits_it_over_fork_and_over_exec() -> None:
    code = """
apply("interleave", [0])
child = os.fork()
if child == 0:
    print(in_force(), flush=True)
    os.execv("/bin/sh", ["sh", "-c", "cut -d ' ' -f 2 /proc/self/numa_maps | sort -u"])
os.waitpid(child, 0)
"""
    assert said(code) == ["InForce(mode='interleave', nodes=(0,))", "interleave:0"]


@needs_numa
def test_local_takes_back_what_was_in_force() -> None:
    code = "apply('one node', [0]); print(apply('local', [0]).ok); print(in_force().mode)"
    assert said(code) == ["True", "default"]


@needs_numa
@pytest.mark.parametrize("nodes", ["[1023]", "[5000]", "[]"])
def test_a_node_that_is_not_there_is_told_and_changes_nothing(nodes: str) -> None:
    told, in_force = said(f"print(apply('one node', {nodes})); print(in_force().mode)")
    assert "this host has no such node" in told
    assert in_force == "default"


@needs_numa
def test_a_node_that_the_kernel_leaves_out_silently_is_told() -> None:
    (told,) = said("print(apply('interleave', [0, 1023]))")
    assert told == "Applied(ok=False, why='of nodes 0,1023 it has only 0')"


@pytest.mark.parametrize(
    ("number", "told", "may"),
    [
        (errno.EPERM, "lacks SYS_NICE", False),
        (errno.ENOSYS, "this kernel has no memory policies", None),
    ],
)
def test_a_refusal_is_an_answer_and_no_crash(
    monkeypatch: pytest.MonkeyPatch, number: int, told: str, may: bool | None
) -> None:
    def refuse(*_: object) -> None:
        raise Refused(number)

    monkeypatch.setattr(policy, "_call", refuse)
    applied = apply("interleave", [0])
    assert not applied.ok
    assert told in applied.why
    assert may_be_set() is may


def test_on_a_machine_whose_calls_have_other_numbers_none_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not apply("interleave", [0]).ok
    assert may_be_set() is None

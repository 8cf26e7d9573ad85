"""What rootfs.sh leaves behind when it can't finish.

debootstrap and Docker are stand-ins; the mounts are real.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "rootfs.sh"
AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]
NOT_AS_ROOT = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []

# Mounts as the real one does, says so, and is then as slow as a bad link.
SLOW_DEBOOTSTRAP = """\
for last; do :; done
case $last in http*) shift $(($# - 2));; *) shift $(($# - 1));; esac
mkdir -p "$1/proc" && mount -t proc proc "$1/proc" && echo $PPID $$ >"$READY" && sleep 600
"""
FAILING_DEBOOTSTRAP = (
    "echo 'I: Retrieving InRelease'\necho 'E: Invalid Release signature'\nexit 1\n"
)
DOCKER = 'echo "$@" >>"$DOCKER_CALLS"\n'


@pytest.fixture
def stand_ins(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()
    a_program(tmp_path, "docker", DOCKER)
    a_program(tmp_path, "debootstrap", SLOW_DEBOOTSTRAP)
    yield tmp_path
    # Never leave a mount behind for pytest to delete through, whatever went wrong.
    for point in mounts_below(tmp_path):
        subprocess.run([*AS_ROOT, "umount", "--lazy", point], check=False)


def a_program(folder: Path, name: str, body: str) -> None:
    path = folder / "bin" / name
    path.write_text(f"#!/bin/bash\n{body}", encoding="utf-8")
    path.chmod(0o755)


@dataclass(frozen=True)
class Run:
    """One run of rootfs.sh. `process` may be sudo: signals go to `script`, by number."""

    process: "subprocess.Popen[str]"
    ready: Path

    def until_mounted(self) -> "Pids":
        script, debootstrap = self.ready.read_text().split()
        return Pids(int(script), int(debootstrap))

    def ended(self) -> tuple[int, str]:
        _, words = self.process.communicate(timeout=30)
        return self.process.returncode, words


@dataclass(frozen=True)
class Pids:
    script: int
    debootstrap: int


def start(folder: Path, name: str = "run") -> Run:
    ready = folder / f"{name}.ready"
    os.mkfifo(ready)
    environment = {
        "PATH": f"{folder / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "TMPDIR": str(folder / "work"),
        "READY": str(ready),
        "DOCKER_CALLS": str(folder / "docker-calls"),
        "DEBIAN_MIRROR": "http://mirror.example/debian",
    }
    process = subprocess.Popen(
        [*AS_ROOT, "env", *(f"{k}={v}" for k, v in environment.items()), SCRIPT, "an/image:tag"],
        stderr=subprocess.PIPE,
        text=True,
    )
    return Run(process, ready)


def kill(number: signal.Signals, *processes: int) -> None:
    targets = [str(process) for process in processes]
    subprocess.run([*AS_ROOT, "kill", f"-{number.value}", "--", *targets], check=True)


def mounts_below(folder: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [point for line in lines if (point := line.split()[4]).startswith(f"{folder}/")]


def left_in(folder: Path) -> list[Path]:
    return list((folder / "work").iterdir())


def test_without_root_it_ends_with_3_and_the_exact_command() -> None:
    done = subprocess.run(
        [*NOT_AS_ROOT, "env", "TMPDIR=/a folder", SCRIPT, "an/image:tag"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert f"Next: sudo TMPDIR=/a\\ folder {SCRIPT} an/image:tag" in done.stderr


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_halfway_it_leaves_no_mount_no_folder_and_no_image(
    stand_ins: Path, number: signal.Signals
) -> None:
    run = start(stand_ins)
    pids = run.until_mounted()
    assert len(mounts_below(stand_ins)) == 1
    kill(number, pids.script)
    code, _ = run.ended()
    assert code == 128 + number
    assert mounts_below(stand_ins) == []
    assert left_in(stand_ins) == []
    assert not Path(f"/proc/{pids.debootstrap}").exists()
    assert "import" not in (stand_ins / "docker-calls").read_text()


@pytest.mark.e2e
def test_what_a_killed_run_left_is_cleared_by_the_next_and_a_living_run_is_left_alone(
    stand_ins: Path,
) -> None:
    killed = start(stand_ins, "killed")
    dead = killed.until_mounted()
    living = start(stand_ins, "living")
    alive = living.until_mounted()
    kill(signal.SIGKILL, dead.script, -dead.debootstrap)
    # Its standard error is at its end when the last process of that run has gone.
    killed.ended()
    assert len(mounts_below(stand_ins)) == 2

    a_program(stand_ins, "debootstrap", FAILING_DEBOOTSTRAP)
    _, words = start(stand_ins, "next").ended()
    assert "removing what a killed run left" in words
    assert len(mounts_below(stand_ins)) == len(left_in(stand_ins)) == 1

    kill(signal.SIGTERM, alive.script)
    living.ended()
    assert left_in(stand_ins) == []


@pytest.mark.e2e
def test_a_failed_debootstrap_is_told_with_its_own_reason_and_makes_no_image(
    stand_ins: Path,
) -> None:
    a_program(stand_ins, "debootstrap", FAILING_DEBOOTSTRAP)
    code, words = start(stand_ins).ended()
    assert code == 1
    assert words.splitlines()[-1].startswith(
        "rootfs: debootstrap could not assemble Debian bookworm from http://mirror.example/debian: "
        "E: Invalid Release signature. Next: "
    )
    assert "rootfs:   I: Retrieving InRelease" in words
    assert "import" not in (stand_ins / "docker-calls").read_text()
    assert left_in(stand_ins) == []

"""install.sh as a program: its arguments, a cut-off download, the way it ends."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from install.machine import PROJECT, Machine, Recording, everything

SCRIPT = (PROJECT / "install.sh").read_bytes()


def test_shell_scripts_are_clean() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.sh", ".ci/run"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    scripts = listed.stdout.split()
    assert {"install.sh", "tests/setup.sh", "images/base/rootfs.sh", ".ci/run"} <= set(scripts)
    done = subprocess.run(
        [PROJECT / ".venv" / "bin" / "shellcheck", *scripts],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    "length", [*(len(SCRIPT) * percent // 100 for percent in range(100)), *range(-60, -1)]
)
def test_a_script_cut_short_runs_nothing(length: int, tmp_path: Path) -> None:
    whole = SCRIPT.rstrip(b"\n")
    # Whatever the rest would call leaves a trace.
    recording = Recording(Machine(system="debian-12"), tmp_path)
    for name in ("dirname", "id", "sed"):
        recording.command(name, f'echo "{name} $*" >>{recording.touched}')
    (recording.project / "install.sh").write_bytes(whole[:length])
    outcome = recording.run()
    assert (outcome.stdout, outcome.touched) == ("", "")


def test_the_whole_script_does_leave_that_trace(tmp_path: Path) -> None:
    recording = Recording(Machine(system="debian-12"), tmp_path)
    recording.command("dirname", f'echo "dirname $*" >>{recording.touched}')
    assert recording.run().touched != ""


def test_help_says_what_was_not_proven(tmp_path: Path) -> None:
    outcome = Recording(Machine(system="debian-12"), tmp_path).run("--help")
    assert outcome.code == 0
    assert "on recorded\noutput; it was not run there" in outcome.stdout


def test_arguments_reach_up_unchanged(tmp_path: Path) -> None:
    outcome = Recording(everything("debian-12"), tmp_path).run(
        "--profile", "it's a demo", "--", "--dry-run", ""
    )
    said = "orchestrator: <up> <--profile> <it's a demo> <--dry-run> <>\n"
    assert outcome.stdout.endswith(said)
    assert outcome.code == 0


def test_arguments_reach_up_unchanged_through_a_new_membership(tmp_path: Path) -> None:
    recording = Recording(
        everything("debian-12", user="sudo", docker="denied", groups="ada docker"), tmp_path
    )
    # As sg does: the command line goes to sh.
    recording.command("sg", f'PATH={recording.commands} DENIED=no; export DENIED; exec sh -c "$3"')
    real = (recording.commands / "docker").read_text()
    allowed = 'if [ "$DENIED" = no ]; then exit 0; fi\n'
    recording.command("docker", allowed + real.removeprefix("#!/bin/sh\n"))
    outcome = recording.run("--profile", "it's a $HOME `demo`")
    said = "orchestrator: <up> <--profile> <it's a $HOME `demo`>\n"
    assert outcome.stdout.endswith(said), outcome.stderr


def test_up_is_not_reached_with_no_up(tmp_path: Path) -> None:
    outcome = Recording(everything("debian-12"), tmp_path).run("--no-up")
    assert "orchestrator" not in outcome.stdout
    assert outcome.code == 0


def test_no_up_and_arguments_for_up_exclude_each_other(tmp_path: Path) -> None:
    outcome = Recording(everything("debian-12"), tmp_path).run("--no-up", "--profile", "demo")
    assert outcome.code == 2
    assert "--profile" in outcome.stderr


def test_a_recorded_machine_is_for_dry_runs_only(tmp_path: Path) -> None:
    recording = Recording(everything("debian-12"), tmp_path)
    assert recording.run(INSTALL_ROOT=str(recording.root)).code == 2


def test_outside_the_project_it_says_so(tmp_path: Path) -> None:
    recording = Recording(everything("debian-12"), tmp_path)
    (recording.project / "requirements.lock").unlink()
    outcome = recording.run()
    assert outcome.code == 2
    assert "clone the whole repository" in outcome.stderr


def test_two_at_once_are_one_too_many(tmp_path: Path) -> None:
    recording = Recording(everything("debian-12"), tmp_path)
    with (recording.project / "install.sh").open() as script:
        fcntl.flock(script, fcntl.LOCK_EX)
        outcome = recording.run()
    assert outcome.code == 9
    assert "another ./install.sh is at work" in outcome.stderr


# --- .venv ---

PIP = """#!/bin/sh
if [ "$2" = pip ]; then
    echo "$*" >>{log}
    echo '{said}' >&2
    exit {code}
fi
exec {real} "$@"
"""


def a_machine_without_venv(folder: Path, said: str = "", code: int = 0) -> Recording:
    """Its python3 makes a .venv whose pip says this."""
    recording = Recording(everything("debian-12", venv=False), folder)
    python = folder / "venv-python"
    python.write_text(PIP.format(log=folder / "pip.log", said=said, code=code, real=sys.executable))
    python.chmod(0o755)
    probe = (recording.commands / "python3").read_text().removeprefix("#!/bin/sh\n")
    make = f'if [ "$2" = venv ]; then /bin/mkdir -p .venv/bin && cp {python} .venv/bin/python; exit; fi\n'
    recording.command("python3", make + probe)
    return recording


def test_venv_is_made_once_with_hashes(tmp_path: Path) -> None:
    recording = a_machine_without_venv(tmp_path)
    first, second = recording.run("--no-up"), recording.run("--no-up")
    assert first.actions == ("make .venv from requirements.lock — there is none",)
    assert second.actions == ()
    (pip,) = (tmp_path / "pip.log").read_text().splitlines()
    assert "--require-hashes -r requirements.lock" in pip


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ("rm .venv/.made-from", "it was not finished"),
        ("rm .venv/bin/python", "its Python does not start"),
        ("echo >>requirements.lock", "requirements.lock or Python changed since"),
        (
            "sed -i 's/^Python .*/Python 3 9/' .venv/.made-from",
            "requirements.lock or Python changed since",
        ),
    ],
)
def test_a_spoilt_venv_is_made_anew(spoil: str, why: str, tmp_path: Path) -> None:
    recording = a_machine_without_venv(tmp_path)
    recording.run("--no-up")
    subprocess.run(["sh", "-c", spoil], cwd=recording.project, check=True)
    outcome = recording.run("--no-up")
    assert outcome.actions == (f"make .venv from requirements.lock — {why}",)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("ERROR: Could not find a version that satisfies the requirement", 5),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", 6),
    ],
)
def test_failed_downloads_and_wrong_hashes_have_their_own_exit_codes(
    said: str, code: int, tmp_path: Path
) -> None:
    outcome = a_machine_without_venv(tmp_path, said, code=1).run("--no-up")
    assert outcome.code == code
    assert said in outcome.stderr

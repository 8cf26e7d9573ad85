"""The command line as a program: what was not foreseen still ends with words and an exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli import main


def test_a_folder_that_cannot_be_made_is_told_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["up", "--state-dir", "/dev/null/state"]) == 2
    told = capsys.readouterr().err
    assert "/dev/null/state" in told
    assert "next: " in told
    assert "Traceback" not in told


def test_an_unknown_profile_ends_with_2_and_names_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["verify", "--profile", "dmeo"]) == 2
    assert "demo" in capsys.readouterr().err


def test_help_says_what_each_verb_and_option_does(capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for command in ("profiles", "doctor"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        said[command] = " ".join(capsys.readouterr().out.split())
    for verb in ("list: all", "show NAME: one", "validate [NAME|FILE ...]: all mistakes"):
        assert verb in said["profiles"]
    assert "only this check; may be given more than once" in said["doctor"]
    assert "--facts FILE|FOLDER" in said["doctor"]


def test_without_a_command_one_is_told_where_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr()
    assert not told.out
    for command in ("recommend", "up", "status", "down", "python3 -m orchestrator --help"):
        assert command in told.err


@pytest.mark.parametrize(
    ("typed", "why", "next_step"),
    [
        ("bogus", "invalid choice: 'bogus'", "python3 -m orchestrator --help"),
        ("up --gateway-prot 1", "up does not take --gateway-prot 1", "mean --gateway-port?"),
        ("status now", "status does not take now", "python3 -m orchestrator status --help"),
        ("-v up", "-v stands before the command", "python3 -m orchestrator --help"),
        ("key", "required: VERB", "python3 -m orchestrator key --help"),
        ("key limit", "required: key", "python3 -m orchestrator key limit --help"),
        ("logs nothing", "no service 'nothing'", "python3 -m orchestrator logs --help"),
        ("logs --tail few", "'few'", "python3 -m orchestrator logs --help"),
        ("profiles show", "profiles show takes one name", "orchestrator profiles list"),
        ("profiles show a b", "profiles show takes one name", "orchestrator profiles list"),
        ("profiles list a", "profiles list takes no name", "orchestrator profiles list"),
        ("weights remove", "weights remove takes one name", "orchestrator weights list"),
        ("weights clean a", "weights clean takes no name", "orchestrator weights list"),
    ],
)
def test_a_line_that_can_not_be_read_is_told_as_every_error_is(
    capsys: pytest.CaptureFixture[str], typed: str, why: str, next_step: str
) -> None:
    assert main(typed.split()) == 2
    told = capsys.readouterr().err
    what, *rest = told.splitlines()
    assert what == "error: the command line can't be used"
    said = " ".join(" ".join(rest).split())
    assert said.startswith("why: ")
    assert why in said
    assert next_step in said.split(" next: ")[1]


def test_help_has_a_line_for_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for command in ("up", "recommend", "key", "version"):
        (line,) = (line for line in lines if line.startswith(f"  {command} "))
        assert len(line.split()) > 2


def test_what_an_output_cannot_spell_is_escaped_and_no_key_is_lost(tmp_path: Path) -> None:
    def told(*typed: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "orchestrator", *typed, "--state-dir", str(tmp_path)],
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, "PYTHONIOENCODING": "latin-1"},
            capture_output=True,
            check=False,
        )
        assert (ran.returncode, b"Traceback" in ran.stderr) == (0, False), ran.stderr
        return ran.stdout.decode("latin-1")

    assert "  sk-" in told("key", "create", "\u5b9e\u9a8c\u5ba4")
    assert r"\u5b9e\u9a8c\u5ba4" in told("key", "list")

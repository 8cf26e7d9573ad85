"""The command line as a program: what was not foreseen still ends with words and an exit code."""

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

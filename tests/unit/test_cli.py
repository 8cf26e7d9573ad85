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

"""An error on the screen: a line for each reason and each step, none wider than the terminal."""

import pytest

from orchestrator.console import Console
from orchestrator.core.errors import BadConfiguration, UnfitProfile
from orchestrator.core.events import StepKept, StepStarted


def told(error: BadConfiguration | UnfitProfile, capsys: pytest.CaptureFixture[str]) -> str:
    Console().explain(error)
    return capsys.readouterr().err


def test_each_reason_and_each_step_has_its_own_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = UnfitProfile(
        "big can't run here",
        why=("disk: needs 404.4 GB, found 212.0 GB", "memory: needs 391.0 GB, found 16.0 GB"),
        next_step=("add RAM; or rent it", "all checks: python3 -m orchestrator doctor"),
    )
    assert told(error, capsys) == (
        "error: big can't run here\n"
        "  why:  disk: needs 404.4 GB, found 212.0 GB\n"
        "        memory: needs 391.0 GB, found 16.0 GB\n"
        "  next: add RAM; or rent it\n"
        "        all checks: python3 -m orchestrator doctor\n"
    )


def test_for_programs_and_the_journal_they_stay_one_text() -> None:
    error = UnfitProfile("x", why=("a", "b"), next_step=("c", "d"))
    assert (error.why, error.next_step) == ("a; b", "c; d")
    assert str(error) == "x: a; b"


def test_a_long_reason_is_wrapped_below_its_beginning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    names = [f"check-number-{n}" for n in range(51)]
    error = BadConfiguration("there is no check 'x'", why=", ".join(names), next_step="choose one")
    lines = told(error, capsys).splitlines()
    assert max(map(len, lines)) <= 60
    assert all(line.startswith("        check-number-") for line in lines[2:-1])
    assert [
        name.strip() for line in lines[1:-1] for name in line[8:].rstrip(",").split(",")
    ] == names


def test_of_several_reasons_a_wrapped_one_goes_on_further_in(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    why = ("memory is too small for this model by far", "disk")
    assert told(BadConfiguration("x", why=why, next_step="y"), capsys).splitlines()[1:4] == [
        "  why:  memory is too small for this",
        "          model by far",
        "        disk",
    ]


def test_a_command_and_an_option_with_its_value_are_never_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    step = "to try it anyway, and to see how far it gets, add --force memory-nodes"
    other = "what is kept here is shown, with its size, by python3 -m orchestrator weights list"
    lines = told(BadConfiguration("x", why="y", next_step=(step, other)), capsys).splitlines()
    assert any("--force memory-nodes" in line for line in lines)
    assert any("python3 -m orchestrator weights" in line for line in lines)


def test_a_word_that_is_wider_than_the_terminal_stays_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    path = "/a/folder/whose/name/is/longer/than/the/terminal/is/wide"
    assert path in told(BadConfiguration("x", why=f"no {path} here", next_step="y"), capsys)


def test_a_step_that_is_as_it_should_be_says_what_was_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console = Console()
    console.show(StepKept("weights", "every byte proven"))
    console.show(StepStarted("first token", 1, "a reply proves it"))
    console.show(StepKept("first token", "first token after 0.02 s"))
    assert capsys.readouterr().err == (
        "= weights: every byte proven\n"
        "> first token: a reply proves it\n"
        "= first token: first token after 0.02 s\n"
    )

"""The commands about the catalogue: list, show, validate."""

import json
from pathlib import Path

import pytest

from orchestrator import catalogue
from orchestrator.adapters.profile_files import read_profile
from orchestrator.commands import Typed
from user_profiles import DEMO, a_project, write

LONG = "a-name-of-twenty-six-signs"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_project(tmp_path)


def test_the_list_is_readable_on_a_narrow_terminal_and_marks_what_is_yours(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, LONG, DEMO.replace('name = "demo"', f'name = "{LONG}"'))
    assert catalogue.list_profiles(Typed(root=root)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    (flagship,) = [line for line in lines if line.startswith("deepseek-r1-q4km")]
    assert flagship.split() == [
        "deepseek-r1-q4km",
        "kt-legacy",
        "404.4",
        "382.0",
        "14.00",
        "documented",
    ]
    (mine,) = [line for line in lines if line.startswith("mine")]
    assert mine.endswith("yours")
    names = [line.split()[0] for line in lines if line]
    assert LONG in names
    assert names.index("deepseek-r1-q4km") < names.index("demo")


def test_the_list_for_programs_holds_all_that_a_profile_says(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert catalogue.list_profiles(Typed(root=root, as_json=True)) == 0
    read = json.loads(capsys.readouterr().out)["profiles"]
    flagship = next(found for found in read if found["name"] == "deepseek-r1-q4km")
    assert flagship["model"]["total_bytes"] == 404_430_187_616
    assert flagship["file"].endswith("configs/profiles/deepseek-r1-q4km.toml")


def test_one_profile_is_shown_with_every_figure_and_its_source(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert catalogue.show_profile(Typed(root=root), "deepseek-r1-q4km") == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    words = " ".join(shown.split())
    profile = read_profile(root / "configs", "deepseek-r1-q4km")
    assert profile.needs.vram
    for figure in (profile.needs.memory, profile.needs.vram):
        assert f"{figure.least_bytes:,} bytes" in words
        assert f"{figure.recommended_bytes:,} bytes" in words
        assert f"source: {' '.join(figure.source.split())}" in words
    assert "404.4 GB = 376.65 GiB (404,430,187,616 bytes)" in words
    assert f"source: {profile.model.source}" in words


def test_valid_profiles_end_with_0(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert catalogue.validate_profiles(Typed(root=root), []) == 0
    assert "3 profile(s) read, 0 problem(s)." in capsys.readouterr().out


def test_all_mistakes_of_all_files_come_at_once_and_end_with_2(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = DEMO.replace("slots", "slot").replace("rank = 1", "rank = -1")
    first, second = write(root, "mine", wrong), write(root, "demo", DEMO)
    assert catalogue.validate_profiles(Typed(root=root), []) == 2
    told = capsys.readouterr().out
    for said in ("serving.slot:", "rank:", str(first), str(second)):
        assert said in told
    assert catalogue.validate_profiles(Typed(root=root, as_json=True), [str(first)]) == 2
    record = json.loads(capsys.readouterr().out)
    assert record["valid"] is False
    assert record["files"] == [str(first)]


def test_a_file_outside_the_project_can_be_validated(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loose = tmp_path / "loose.toml"
    loose.write_text(DEMO.replace('name = "demo"', 'name = "loose"'), encoding="utf-8")
    assert catalogue.validate_profiles(Typed(root=root), [str(loose), "demo"]) == 0
    assert "2 profile(s)" in capsys.readouterr().out

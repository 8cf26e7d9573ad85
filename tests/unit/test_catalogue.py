"""Profiles as people write them: mistakes are named with line and cure, figures with their source."""

import json
import shutil
from pathlib import Path

import pytest

from orchestrator import catalogue
from orchestrator.adapters.profile_files import (
    known_profiles,
    profile_problems,
    read_all,
    read_profile,
)
from orchestrator.commands import Typed
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.schema import keys_at

SHIPPED = Path(__file__).resolve().parents[2] / "configs" / "profiles"
DEMO = (SHIPPED / "demo.toml").read_text(encoding="utf-8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with two shipped profiles and one of the user's."""
    for part in ("profiles", "profiles.d"):
        (tmp_path / "configs" / part).mkdir(parents=True)
    for name in ("demo", "deepseek-r1-q4km"):
        shutil.copy(SHIPPED / f"{name}.toml", tmp_path / "configs" / "profiles")
    write(
        tmp_path,
        "mine",
        DEMO.replace('name = "demo"', 'name = "mine"').replace("rank = 1", "rank = 9"),
    )
    return tmp_path


def write(root: Path, name: str, text: str) -> Path:
    path = root / "configs" / "profiles.d" / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def line_of(text: str, start: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), start=1) if line.startswith(start))


def test_the_users_profiles_stand_beside_the_shipped_ones(root: Path) -> None:
    configs = root / "configs"
    assert known_profiles(configs) == ("deepseek-r1-q4km", "demo", "mine")
    assert read_profile(configs, "mine").name == "mine"
    assert [profile.name for profile in read_all(configs)] == list(known_profiles(configs))


def test_a_users_profile_can_not_silently_replace_a_shipped_one(root: Path) -> None:
    own = write(root, "demo", DEMO)
    with pytest.raises(BadConfiguration) as caught:
        read_profile(root / "configs", "demo")
    told = f"{caught.value.what} {caught.value.why} {caught.value.next_step}"
    assert str(root / "configs" / "profiles" / "demo.toml") in told
    assert str(own) in told
    with pytest.raises(BadConfiguration, match="demo"):
        read_all(root / "configs")
    assert read_profile(root / "configs", "mine").name == "mine"


def test_an_unknown_profile_brings_a_suggestion(root: Path) -> None:
    with pytest.raises(BadConfiguration) as caught:
        read_profile(root / "configs", "deepseek-r1-q4m")
    assert "--profile deepseek-r1-q4km" in caught.value.next_step


@pytest.mark.parametrize(
    ("old", "new", "line_starts", "said"),
    [
        (
            "slots = 2",
            "slot = 2",
            "slot =",
            "serving.slot: there is no such key; did you mean 'slots'?",
        ),
        ("[needs.memory]", "[needs.memroy]", "[needs.memroy]", "did you mean 'memory'?"),
        (
            "least_bytes = 536_870_912",
            'least_bytes = "much"',
            "least_bytes",
            "needs.memory.least_bytes: ",
        ),
        (
            'path = "tests',
            'paht = "tests',
            "paht",
            "sources.0.paht: there is no such key; did you mean",
        ),
        ('engine = "llamacpp"', 'engine = "vllm"', "engine", "engine: Input should be 'llamacpp'"),
        ("quality = ", "quallity = ", "quallity", "did you mean 'quality'?"),
        ('name = "mine"', 'name = "yours"', "name", "it calls itself 'yours'"),
        ('source = "measured', 'source = ""#', "source", "needs.memory.source: "),
    ],
)
def test_a_mistake_is_named_with_file_line_field_and_cure(
    root: Path, old: str, new: str, line_starts: str, said: str
) -> None:
    text = DEMO.replace('name = "demo"', 'name = "mine"').replace(old, new, 1)
    path = write(root, "mine", text)
    candidates = {n for n, line in enumerate(text.splitlines(), 1) if line.startswith(line_starts)}
    problems = profile_problems(path)
    assert any(
        said in problem and int(problem.removeprefix(f"{path}:").split(":")[0]) in candidates
        for problem in problems
    ), problems


def test_a_missing_field_is_told_with_the_line_of_its_table(root: Path) -> None:
    text = DEMO.replace('name = "demo"', 'name = "mine"').replace("max_tokens = 1024\n", "")
    path = write(root, "mine", text)
    assert profile_problems(path) == (
        f"{path}:{line_of(text, '[serving]')}: serving.max_tokens: it is missing",
    )


def test_text_in_a_string_is_not_taken_for_a_key(root: Path) -> None:
    text = DEMO.replace('name = "demo"', 'name = "mine"').replace(
        "rank = 1", 'rnk = 1\nrank = 1\nnote = """\nrnk = 2\n"""'
    )
    path = write(root, "mine", text)
    assert f"{path}:{line_of(text, 'rnk')}: rnk: there is no such key; did you mean 'rank'?" in (
        profile_problems(path)
    )


def test_what_is_no_toml_is_told_with_its_line(root: Path) -> None:
    path = write(root, "mine", 'name = "mine"\nrank = \n')
    (problem,) = profile_problems(path)
    assert "line 2" in problem
    assert str(path) in problem


def test_a_file_that_is_not_text_is_told_without_a_traceback(root: Path) -> None:
    path = root / "configs" / "profiles.d" / "mine.toml"
    path.write_bytes(b"\xff\xfe")
    (problem,) = profile_problems(path)
    assert problem.startswith(f"{path}: can't be read")
    with pytest.raises(BadConfiguration, match="mine"):
        read_profile(root / "configs", "mine")


def test_every_place_knows_its_own_keys() -> None:
    assert {"name", "engine", "sources"} <= keys_at(())
    assert {"repo", "patterns", "url", "path"} <= keys_at(("sources", 0))
    assert keys_at(("needs", "vram")) == {"least_bytes", "recommended_bytes", "source"}
    assert keys_at(("nothing", "here")) == frozenset()


def test_the_list_is_readable_on_a_narrow_terminal_and_marks_what_is_yours(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    for said in ("serving.slot:", "serving.slots: it is missing", "rank:", str(first), str(second)):
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

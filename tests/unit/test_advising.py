"""plan, recommend and doctor for a host whose facts were saved: exit codes, and what is printed where."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import hosts
from judged import shipped
from orchestrator.advising import _subject
from orchestrator.choosing import Considered, consider, first_advice, refuse_unfit
from orchestrator.cli import main
from orchestrator.core.errors import BadConfiguration, UnfitHost, UnfitProfile
from orchestrator.core.facts import HostFacts
from orchestrator.core.recommend import Pick
from orchestrator.core.settings import Layer
from orchestrator.place import Place, settings_without_profile

ROOT = Path(__file__).resolve().parents[2]
FLAGSHIP = ("--profile", "deepseek-r1-q4km")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command on a host's facts -> its exit code, standard output and standard error."""

    def typed(command: str, facts: HostFacts, *flags: str) -> tuple[int, str, str]:
        saved = tmp_path / "facts.json"
        saved.write_text(facts.model_dump_json())
        folders = ("--state-dir", str(tmp_path), "--weights-dir", str(tmp_path / "weights"))
        code = main([command, "--facts", str(saved), *folders, *flags])
        said = capsys.readouterr()
        return code, said.out, said.err

    return typed


def test_a_profile_that_is_refused_is_planned_all_the_same(run: Run) -> None:
    code, out, err = run("plan", hosts.rtx4090_256gb(), *FLAGSHIP, "--json")
    record = json.loads(out)
    assert code == UnfitProfile.exit_code
    assert record["profile"] == "deepseek-r1-q4km"
    assert "".join(record["refused"]["why"].replace(";", "").split()) in "".join(err.split())
    assert "memory: needs" in record["refused"]["why"]
    assert {share["where"] for share in record["budget"]} == {"disk", "RAM", "GPU 0"}


def test_force_skips_the_check_that_it_names_and_no_other(run: Run) -> None:
    host, force = hosts.rtx4090_256gb(), ("--force", "memory")
    assert run("plan", host, *FLAGSHIP)[0] == UnfitProfile.exit_code
    assert run("plan", host, *FLAGSHIP, *force)[0] == 0
    code, _, err = run("plan", hosts.no_gpu_small(), *FLAGSHIP, *force)
    assert (code, "memory: needs" in err) == (UnfitProfile.exit_code, False)
    assert "gpu-count: needs" in err
    code, _, err = run("plan", host, *FLAGSHIP, "--force", "memroy")
    assert (code, "did you mean 'memory'?" in err) == (BadConfiguration.exit_code, True)


MISPLACED = """
name = "mine"
summary = "experts of layers that the model does not have"

[[rules]]
modules = "experts"
layers = "90-99"
device = "cpu"
kernel = "cpu"
why = "x"
"""


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        (("--placement", "mine"), "the placement mine does not fit this model"),
        (("--force", "memroy"), "there is no check 'memroy'"),
        (("--placement", "nine"), "there is no placement 'nine'"),
    ],
)
def test_of_a_word_that_is_wrong_plan_says_only_that(
    run: Run, tmp_path: Path, wrong: tuple[str, str], refusal: str
) -> None:
    configs = tmp_path / "configs"
    for folder in ("placements", "profiles"):
        shutil.copytree(ROOT / "configs" / folder, configs / folder)
    (configs / "placements.d").mkdir()
    (configs / "placements.d" / "mine.toml").write_text(MISPLACED, encoding="utf-8")
    typed = ("plan", hosts.rtx4090_480gb_two_sockets(), *FLAGSHIP)
    given = (*wrong, "--configs-dir", str(configs))
    code, out, err = run(*typed, *given)
    assert (code, out) == (BadConfiguration.exit_code, "")
    assert refusal in err.splitlines()[0]
    _, out, _ = run(*typed, *given, "--json")
    assert refusal in json.loads(out)["refused"]["what"]


@pytest.mark.parametrize("command", ["plan", "recommend", "doctor"])
@pytest.mark.parametrize("profile", [(), ("--profile", "demo")])
def test_a_placement_that_there_is_not_is_refused_once_whatever_the_profile(
    run: Run, command: str, profile: tuple[str, ...]
) -> None:
    code, out, err = run(command, hosts.no_gpu_small(), "--placement", "two-gpu", *profile)
    assert (code, out) == (BadConfiguration.exit_code, "")
    assert err.splitlines()[0] == "error: there is no placement 'two-gpu'"
    assert "did you mean two-gpus?" in err


def test_where_no_profile_fits_programs_hear_so_too(run: Run) -> None:
    code, out, err = run("plan", hosts.aarch64_grace(), "--json")
    record = json.loads(out)
    assert (code, record["profile"]) == (UnfitHost.exit_code, None)
    assert "not even demo: architecture: needs x86_64" in record["refused"]["why"]
    assert record["refused"]["what"] in err


def test_a_host_that_nothing_fits_is_judged_for_what_needs_least_and_can_be_started(
    run: Run,
) -> None:
    code, out, _ = run("doctor", hosts.container_64gb_limit_on_512gb(), "--json")
    record = json.loads(out)
    blocked = {check["check"] for check in record["checks"] if check["result"] == "block"}
    assert (code, record["profile"]) == (UnfitHost.exit_code, "demo")
    assert blocked == {"container", "docker"}


def test_the_facts_are_saved_without_a_word_among_the_json(run: Run, tmp_path: Path) -> None:
    facts, saved = hosts.no_gpu_small(), tmp_path / "again.json"
    _, out, err = run("doctor", facts, "--json", "--save-facts", str(saved))
    assert json.loads(out)["profile"] == "deepseek-r1-distill-1.5b"
    assert str(saved) in err
    assert HostFacts.model_validate_json(saved.read_bytes()).memory == facts.memory


def test_the_plan_is_80_columns_wide_and_cuts_no_word_of_the_engines_command(run: Run) -> None:
    for given in (FLAGSHIP, ()):
        _, out, _ = run("plan", hosts.rtx4090_480gb_two_sockets(), *given)
        assert max(map(len, out.splitlines())) <= 80
        if given:
            assert "--cache_lens 8192" in " ".join(out.split())


@pytest.fixture
def broken(tmp_path: Path) -> tuple[str, ...]:
    """Flags for a catalogue in which one of the user's profiles has mistakes. It served last."""
    configs = tmp_path / "configs"
    shutil.copytree(ROOT / "configs" / "profiles", configs / "profiles")
    (configs / "profiles.d").mkdir()
    demo = (configs / "profiles" / "demo.toml").read_text(encoding="utf-8")
    text = demo.replace('"demo"', '"mine"').replace("rank = 1", "rnak = 1")
    (configs / "profiles.d" / "mine.toml").write_text(text, encoding="utf-8")
    (tmp_path / "stack.env").write_text("STACK_PROFILE='mine'\n", encoding="utf-8")
    return "--configs-dir", str(configs)


@pytest.mark.parametrize("command", ["doctor", "recommend", "plan"])
def test_a_mistake_in_one_profile_is_told_and_the_others_are_judged(
    run: Run, broken: tuple[str, ...], command: str
) -> None:
    code, out, err = run(command, hosts.no_gpu_small(), *broken, "--json")
    assert code in {0, UnfitHost.exit_code, UnfitProfile.exit_code}
    assert json.loads(out)
    told = "".join(err.split())
    assert told.count("warning:leftout:") == 1
    assert "profiles.d/mine.toml:" in told
    assert "rnak:thereisnosuchkey;didyoumean'rank'?" in told


@pytest.mark.parametrize("command", ["doctor", "plan"])
def test_a_profile_with_a_mistake_can_not_be_named(
    run: Run, broken: tuple[str, ...], command: str
) -> None:
    code, _, err = run(command, hosts.no_gpu_small(), *broken, "--profile", "mine")
    assert (code, "the profile mine can't be used" in err) == (BadConfiguration.exit_code, True)


def test_what_serves_is_a_subject_of_doctor_only_while_it_can_be_read(
    tmp_path: Path, broken: tuple[str, ...]
) -> None:
    flags = {"configs_dir": broken[1], "state_dir": str(tmp_path)}
    layers, _, place = settings_without_profile(tmp_path, flags)
    assert _subject(layers, place, hosts.no_gpu_small())[0].profile.name != "mine"
    with pytest.raises(BadConfiguration, match="mine"):
        consider_serving(layers, place)


def consider_serving(layers: tuple[Layer, ...], place: Place) -> None:
    """As `up` does: another model than the one that serves is nothing to bring up unasked."""
    facts = place.root / "facts.json"
    facts.write_text(hosts.no_gpu_small().model_dump_json(), encoding="utf-8")
    consider(layers, place, None, facts)


def considered(tmp_path: Path, *, chosen: bool) -> Considered:
    layers, _, place = settings_without_profile(tmp_path, {})
    place = replace(place, root=ROOT)
    facts, profile = hosts.rtx4090_256gb(), shipped("deepseek-r1-q4km")
    return Considered(
        layers=layers,
        pick=Pick(profile.name, "", chosen=chosen),
        facts=facts,
        advice=first_advice(profile, layers, place, facts),
    )


@pytest.mark.parametrize(("chosen", "kind"), [(True, UnfitProfile), (False, UnfitHost)])
def test_a_profile_that_served_before_is_refused_as_one_that_was_chosen(
    tmp_path: Path, chosen: bool, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        refuse_unfit(considered(tmp_path, chosen=chosen), ())


def test_a_pull_may_be_told_to_skip_a_check_that_it_does_not_make(tmp_path: Path) -> None:
    forced = ("toolkit", "engine-image", "memory")
    overridden = refuse_unfit(considered(tmp_path, chosen=True), forced, pulling=True)
    assert [found.check for found in overridden] == ["memory"]

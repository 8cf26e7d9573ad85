"""Every flag that the orchestrator renders for kt-sglang is one that sglang's own parser takes."""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import hosts
from fitting import a_profile, settings_of
from kt_sglang_engine.arguments import FOLDERS, absolute, cards, problems
from orchestrator.core.facts import HostFacts
from orchestrator.core.placement import place
from orchestrator.core.profile import Engine
from sglang_flags import RECORDED, record_of, recorded_flags

ROOT = Path(__file__).resolve().parents[2]
NAMES = [
    path.stem
    for path in sorted((ROOT / "configs" / "profiles").glob("*.toml"))
    if a_profile(path.stem).engine is Engine.KT_SGLANG
]
FLAGS = recorded_flags()


def objections(arguments: Sequence[str]) -> list[str]:
    """As argparse would have it, flag by flag."""
    starts = [at for at, word in enumerate(arguments) if word.startswith("--")]
    found = [] if starts[:1] == [0] else ["the first word is no flag"]
    for start, end in zip(starts, [*starts[1:], len(arguments)], strict=True):
        name, values = arguments[start], tuple(arguments[start + 1 : end])
        if name not in FLAGS:
            found.append(f"{name}: sglang has no such flag")
        elif said := FLAGS[name].objection(values):
            found.append(f"{name} {said}")
    return found


@pytest.mark.parametrize("make", hosts.ALL, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_sglang_takes_what_is_planned_for_a_profile(
    name: str, make: Callable[[], HostFacts]
) -> None:
    profile = a_profile(name)
    placement = place(profile, settings_of(profile), make(), None)
    assert objections(placement.arguments) == []
    assert problems(placement.arguments) == ()
    assert cards(placement.arguments) == max(1, len(placement.gpus))


def test_the_catalogue_has_models_of_experts_and_a_dense_one() -> None:
    methods = {options.method for name in NAMES if (options := a_profile(name).kt_sglang)}
    assert None in methods
    assert len(methods) > 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kt-cpuinfers", "4"), ["--kt-cpuinfers: sglang has no such flag"]),
        (("--kt-cpuinfer", "four"), ["--kt-cpuinfer four is no int"]),
        (("--enable-mixed-chunk", "1"), ["--enable-mixed-chunk takes 0 values, given are 1"]),
        (("--kt-numa-nodes",), ["--kt-numa-nodes takes + values, given are 0"]),
        (("python3", "--host", "a"), ["the first word is no flag"]),
    ],
)
def test_what_sglang_would_refuse_is_noticed(arguments: tuple[str, ...], said: list[str]) -> None:
    assert objections(arguments) == said


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--attention-backend", "flash"),
        ("--reasoning-parser", "deepseek"),
        ("--tool-call-parser", "deepseek"),
        ("--kt-expert-placement-strategy", "even"),
    ],
)
def test_a_value_that_is_none_of_the_choices_is_noticed(flag: str, value: str) -> None:
    (said,) = objections((flag, value))
    assert said.startswith(f"{flag} {value} is none of ")


def test_folders_are_those_of_the_proven_weights_as_the_container_sees_them(
    tmp_path: Path,
) -> None:
    profile = a_profile("qwen3-30b-a3b-bf16")
    planned = place(profile, settings_of(profile), hosts.h200(), None).arguments
    told = absolute(planned, tmp_path)
    for flag in FOLDERS:
        assert told[told.index(flag) + 1] == str(tmp_path)
    assert [word for word in told if word != str(tmp_path)] == [w for w in planned if w != "."]


@pytest.mark.long
def test_the_flags_recorded_here_are_those_of_the_locked_wheel(tmp_path: Path) -> None:
    """100 MB to download."""
    lock = (ROOT / "images/inference/kt-sglang/requirements.lock").read_text(encoding="utf-8")
    (pin,) = re.findall(r"^sglang-kt==.*?(?=^\S)", lock, re.MULTILINE | re.DOTALL)
    (tmp_path / "pin.lock").write_text(pin, encoding="utf-8")
    subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
            ),
            *("--python-version", "3.11", "--require-hashes", "-r", str(tmp_path / "pin.lock")),
            *("--dest", str(tmp_path)),
        ],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert record_of(wheel) == RECORDED.read_text(encoding="utf-8")

"""From a profile's placement to the rule file that its engine reads, and every reason why there is none."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import fitting
import hosts
from orchestrator.adapters.placement_files import read_form
from orchestrator.choosing import Considered
from orchestrator.core.advice import advise
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.inventory import Inventory
from orchestrator.core.kt_legacy.tree import Tree, tree_of
from orchestrator.core.recommend import Pick
from orchestrator.place import Place
from orchestrator.prepare import rules_of

ROOT = fitting.ROOT


def a_place(configs: Path = ROOT / "configs") -> Place:
    here = Path("/nowhere")
    return Place(root=ROOT, state=here, secrets=here, weights=here, configs=configs)


def considered(name: str, inventory: Inventory | None, **changes: Any) -> Considered:
    facts = hosts.h200()
    advice = advise(fitting.a_profile(name, **changes), (), facts, inventory, 0)
    return Considered(layers=(), pick=Pick(name, "a test"), facts=facts, advice=advice)


def test_the_rules_are_those_of_the_profile_laid_over_the_model() -> None:
    found = rules_of(considered("deepseek-r1-q4km", fitting.deepseek_r1()), a_place())
    recorded = Path(__file__).parent / "golden/kt-legacy-single-gpu-deepseek-r1.yaml"
    assert found == recorded.read_text(encoding="utf-8")


def test_a_model_without_yarn_counts_its_positions_otherwise() -> None:
    assert tree_of(fitting.tinyseek().shape) == Tree(layers=4, dense_layers=1, yarn=False)
    assert tree_of(fitting.deepseek_r1().shape) == Tree(layers=61, dense_layers=3, yarn=True)
    found = rules_of(considered("demo-gpu", fitting.tinyseek()), a_place())
    assert ".RotaryEmbeddingV3" in found
    assert "Yarn" not in found


def test_other_engines_have_no_rules() -> None:
    assert rules_of(considered("demo", fitting.tinyseek()), a_place()) == ""


@pytest.mark.parametrize(
    ("name", "inventory", "rules", "why"),
    [
        ("demo-gpu", None, "single-gpu", "neither its files nor its sources say"),
        ("demo-gpu", fitting.tinyseek(), "single", "neither .*placements.d/single.toml nor"),
        ("demo-gpu", fitting.tinyseek(), "two-gpus", "it takes 2 GPUs, and this host has 1"),
    ],
)
def test_a_placement_that_can_not_be_is_refused_before_anything_starts(
    name: str, inventory: Inventory | None, rules: str, why: str
) -> None:
    found = considered(name, inventory, kt_legacy={"rules": rules})
    with pytest.raises(BadConfiguration) as refused:
        rules_of(found, a_place())
    assert re.search(why, str(refused.value.why))


def test_a_placement_of_ones_own_lies_beside_the_shipped_ones(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "configs/placements", tmp_path / "placements")
    own = tmp_path / "placements.d"
    own.mkdir()
    text = (tmp_path / "placements/single-gpu.toml").read_text(encoding="utf-8")
    (own / "mine.toml").write_text(text.replace('"single-gpu"', '"mine"'), encoding="utf-8")
    assert read_form(tmp_path, "mine").name == "mine"
    for content, why in (
        (text, "it calls itself 'single-gpu'"),
        ("rules = 1", "name: Field required"),
        ("[[", "Invalid"),
    ):
        (own / "mine.toml").write_text(content, encoding="utf-8")
        with pytest.raises(BadConfiguration) as refused:
            read_form(tmp_path, "mine")
        assert why in str(refused.value.why)

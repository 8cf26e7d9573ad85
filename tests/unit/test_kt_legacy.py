"""Placements of kt-legacy: the forms that are shipped, what is rendered from them, what is refused."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.core.kt_legacy.command import Command, arguments
from orchestrator.core.kt_legacy.form import Form
from orchestrator.core.kt_legacy.layout import problems
from orchestrator.core.kt_legacy.rules import render
from orchestrator.core.kt_legacy.tree import Tree, modules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden"
FORMS = sorted(path.stem for path in (ROOT / "configs/placements").glob("*.toml"))
TINYSEEK = Tree(layers=4, dense_layers=1, yarn=False)
DEEPSEEK_R1 = Tree(layers=61, dense_layers=3, yarn=True)

HEAD = {"modules": "head", "device": "cuda:0", "kernel": "torch", "why": "x"}
EMBEDDING = {"modules": "embedding", "device": "cpu", "kernel": "torch", "why": "x"}
EXPERTS = {"modules": "experts", "device": "cpu", "kernel": "cpu", "why": "x"}
LAYERS = {"modules": "layers", "device": "cuda:0", "kernel": "marlin", "why": "x"}


def shipped(name: str) -> Form:
    text = (ROOT / "configs/placements" / f"{name}.toml").read_text(encoding="utf-8")
    return Form.model_validate(tomllib.loads(text))


def a_form(*rules: dict[str, str]) -> Form:
    return Form.model_validate({"name": "x", "summary": "x", "rules": rules})


def placed(rules: str, tree: Tree) -> dict[str, dict[str, Any]]:
    """What the engine makes of a rule file: the first rule that fits each module decides."""
    found: dict[str, dict[str, Any]] = {}
    parsed = yaml.safe_load(rules)
    for module in modules(tree):
        for rule in parsed:
            match = rule["match"]
            if not re.search(match["name"], module.name):
                continue
            if match.get("class", module.kind.value) == module.kind.value:
                found[module.name] = rule["replace"]
                break
    return found


# --- the module tree ---


def test_the_modules_are_those_that_the_engine_itself_builds() -> None:
    recorded = json.loads((GOLDEN / "kt-legacy-modules.json").read_text())
    assert {m.name: m.kind.value.rpartition(".")[2] for m in modules(TINYSEEK)} == recorded[
        "tinyseek"
    ]


# --- what is rendered ---


@pytest.mark.parametrize(
    ("name", "tree", "golden"),
    [
        ("single-gpu-no-marlin", TINYSEEK, "tinyseek"),
        ("single-gpu", DEEPSEEK_R1, "deepseek-r1"),
        ("two-gpus", DEEPSEEK_R1, "deepseek-r1"),
        ("experts-on-gpu", DEEPSEEK_R1, "deepseek-r1"),
    ],
)
def test_a_shipped_placement_is_rendered_as_recorded(name: str, tree: Tree, golden: str) -> None:
    assert list(problems(shipped(name), tree, gpus=2, marlin="no" not in name)) == []
    recorded = (GOLDEN / f"kt-legacy-{name}-{golden}.yaml").read_text(encoding="utf-8")
    assert render(shipped(name), tree) == recorded


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_named_as_its_file(name: str) -> None:
    assert shipped(name).name == name


@pytest.mark.parametrize("name", FORMS)
def test_every_module_with_weights_gets_a_device(name: str) -> None:
    found = placed(render(shipped(name), DEEPSEEK_R1), DEEPSEEK_R1)
    for module in modules(DEEPSEEK_R1):
        if module.name != "model":
            assert found[module.name]["kwargs"]["generate_device"], module


def test_on_one_gpu_all_but_experts_and_embedding_is_on_it() -> None:
    found = placed(render(shipped("single-gpu"), DEEPSEEK_R1), DEEPSEEK_R1)
    on_cpu = [n for n, r in found.items() if r["kwargs"].get("generate_device") == "cpu"]
    experts = [f"model.layers.{layer}.mlp.experts" for layer in range(3, 61)]
    assert sorted(on_cpu) == sorted([*experts, "model.embed_tokens"])
    linear = found["model.layers.60.mlp.shared_experts.down_proj"]
    assert linear["kwargs"]["generate_op"] == "KLinearMarlin"
    # The attention takes it apart, so no kernel may pack it.
    assert found["model.layers.7.self_attn.kv_b_proj"]["class"] == "default"
    assert (
        found["model.layers.7.self_attn"]["class"] == "kt_legacy_engine.operators.CachedAttention"
    )


def test_on_two_gpus_everything_of_a_layer_is_where_the_layer_is() -> None:
    found = placed(render(shipped("two-gpus"), DEEPSEEK_R1), DEEPSEEK_R1)
    for module in modules(DEEPSEEK_R1):
        if module.layer is not None:
            device = "cuda:0" if module.layer < 30 else "cuda:1"
            options = found[module.name]["kwargs"]
            assert options.get("out_device", options["generate_device"]) == device, module
    assert found["model"]["kwargs"]["transfer_map"] == {30: "cuda:1"}
    assert found["model.norm"]["kwargs"]["generate_device"] == "cuda:1"


def test_some_experts_may_be_on_the_gpu() -> None:
    found = placed(render(shipped("experts-on-gpu"), DEEPSEEK_R1), DEEPSEEK_R1)
    kernels = {n: r["kwargs"]["generate_op"] for n, r in found.items() if n.endswith(".experts")}
    on_gpu = [name for name, kernel in kernels.items() if kernel == "KExpertsMarlin"]
    assert on_gpu == [f"model.layers.{layer}.mlp.experts" for layer in (3, 4, 5)]


@pytest.mark.parametrize(
    ("tree", "rotary"), [(TINYSEEK, "RotaryEmbeddingV3"), (DEEPSEEK_R1, "YarnRotaryEmbeddingV3")]
)
def test_positions_are_computed_as_the_model_was_trained(tree: Tree, rotary: str) -> None:
    found = placed(render(shipped("single-gpu"), tree), tree)
    assert (
        found["model.layers.0.self_attn.rotary_emb"]["class"]
        == f"ktransformers.operators.RoPE.{rotary}"
    )


# --- what is refused ---


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        pytest.param(
            [LAYERS, EMBEDDING, HEAD],
            "no rule says where experts of layers 3 to 60 live",
            id="homeless",
        ),
        pytest.param(
            [LAYERS | {"layers": "-29"}, EXPERTS, EMBEDDING, HEAD],
            "no rule says where layers of layers 30 to 60 live",
            id="homeless layers",
        ),
        pytest.param(
            [LAYERS, EXPERTS | {"layers": "61-"}, EXPERTS, EMBEDDING, HEAD],
            "rule 2 (experts 61- on cpu): the model has no such modules: its layers with experts are 3 to 60",
            id="beyond the model",
        ),
        pytest.param(
            [LAYERS, EXPERTS, EMBEDDING, HEAD | {"layers": "60"}],
            "rule 4 (head 60 on cuda:0): the model has no such modules: its head is in no layer: "
            "leave `layers` out",
            id="head of a layer",
        ),
        pytest.param(
            [LAYERS, EXPERTS, EMBEDDING | {"layers": "1-"}, HEAD],
            "its embedding is in no layer: leave `layers` out",
            id="embedding of layers",
        ),
        pytest.param(
            [LAYERS | {"device": "cuda:1"}, EXPERTS, EMBEDDING, HEAD | {"device": "cuda:1"}],
            "it uses cuda:1 and not cuda:0: cards are counted from 0 over those that the engine "
            "gets, which the setting gpus chooses",
            id="the first card left out",
        ),
        pytest.param(
            [LAYERS, EXPERTS, EXPERTS | {"layers": "5"}, EMBEDDING, HEAD],
            "rule 3 (experts 5 on cpu): it never applies",
            id="covered",
        ),
        pytest.param(
            [LAYERS | {"layers": "-30"}, LAYERS | {"layers": "30-"}, EXPERTS, EMBEDDING, HEAD],
            "rule 2 (layers 30- on cuda:0): rule 1 (-30) covers 30 as well",
            id="twice",
        ),
        pytest.param(
            [LAYERS, EXPERTS | {"layers": "58-70"}, EXPERTS, EMBEDDING, HEAD],
            "rule 2 (experts 58-70 on cpu): the model's layers end with 60",
            id="beyond its end",
        ),
        pytest.param(
            [LAYERS | {"device": "cpu"}, EXPERTS, EMBEDDING, HEAD],
            "layers can be marlin on a gpu or torch on a gpu only",
            id="layers on the CPU",
        ),
        pytest.param(
            [LAYERS, EXPERTS | {"device": "cuda:0", "kernel": "torch"}, EMBEDDING, HEAD],
            "experts can be cpu on a cpu or marlin on a gpu only",
            id="16-bit experts",
        ),
        pytest.param(
            [LAYERS | {"device": "cuda:2"}, EXPERTS, EMBEDDING, HEAD],
            "it takes 3 GPUs, and this host has 2",
            id="too many GPUs",
        ),
        pytest.param(
            [LAYERS | {"layers": "5", "device": "cuda:1"}, LAYERS, EXPERTS, EMBEDDING, HEAD],
            "go back to a GPU",
            id="back and forth",
        ),
    ],
)
def test_a_placement_that_can_not_work_is_refused_with_the_reason(
    rules: Sequence[dict[str, str]], why: str
) -> None:
    found = list(problems(a_form(*rules), DEEPSEEK_R1, gpus=2, marlin=True))
    assert any(why in problem for problem in found), found


def test_an_image_without_marlin_can_not_serve_what_asks_for_it() -> None:
    found = list(problems(shipped("single-gpu"), DEEPSEEK_R1, gpus=1, marlin=False))
    assert found == ["rule 1 (layers all on cuda:0): the image was built without Marlin"]


def test_unknown_words_in_a_form_are_refused() -> None:
    with pytest.raises(ValueError, match="layers are written all, 5, 3-29, 30- or -29"):
        a_form(LAYERS | {"layers": "some"})


# --- the command line ---


def test_the_command_line_is_as_recorded() -> None:
    command = Command(
        gguf_dir="Q4_K_M",
        rules_file="/placement/rules.yaml",
        threads=15,
        context_tokens=2048,
        max_tokens=4096,
        chunk_tokens=256,
    )
    assert " ".join(arguments(command)) == (
        "--gguf_path Q4_K_M --optimize_config_path /placement/rules.yaml "
        "--cpu_infer 16 --cache_lens 2048 --max_new_tokens 2048 --chunk_size 256 --cpu_variant auto"
    )

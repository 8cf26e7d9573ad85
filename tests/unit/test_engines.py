"""Which files each engine reads, as a table: types, architectures, and the names MLA goes by."""

from dataclasses import replace

import pytest

from images.wire.tests.gguf_files import tinyseek
from orchestrator.core.engines import ABILITIES, Format, KvB, kv_b_of, reasons, unreadable
from orchestrator.core.inventory import Inventory, Weight, WeightClass, classify, inventory_of
from orchestrator.core.profile import Engine

LLAMACPP, LEGACY, SGLANG = Engine.LLAMACPP, Engine.KT_LEGACY, Engine.KT_SGLANG
EXPERTS = "blk.3.ffn_down_exps.weight"
ATTENTION = "blk.0.attn_q_a.weight"


def a_weight(name: str, kind: str) -> Weight:
    of, layer = classify(name)
    return Weight(name=name, type=kind, shape=(256,), size_bytes=1, kind=of, layer=layer)


def an_inventory(*weights: Weight, architecture: str = "deepseek2") -> Inventory:
    """TinySeek with these tensors instead of those of the same names."""
    whole = inventory_of(tinyseek())
    named = {weight.name: weight for weight in (*whole.weights, *weights)}
    shape = replace(whole.shape, architecture=architecture)
    return replace(whole, shape=shape, weights=tuple(named.values()))


def without(inventory: Inventory, *ends: str) -> Inventory:
    kept = tuple(weight for weight in inventory.weights if not weight.name.endswith(ends))
    return replace(inventory, weights=kept)


@pytest.mark.parametrize("engine", Engine)
def test_every_engine_reads_q4_k_m_of_deepseeks_architecture(engine: Engine) -> None:
    assert unreadable(engine, an_inventory()) == ()


def test_every_engine_has_an_image() -> None:
    assert [engine for engine in Engine if ABILITIES[engine].has_image] == list(Engine)


def test_kt_sglang_has_not_been_seen_to_answer() -> None:
    assert [engine for engine in Engine if not ABILITIES[engine].seen] == [SGLANG]


@pytest.mark.parametrize(
    ("kind", "readers"),
    [
        # Standard quants: what KTransformers' maintainers stand by.
        ("F32", {LLAMACPP, LEGACY, SGLANG}),
        ("F16", {LLAMACPP, LEGACY, SGLANG}),
        ("Q8_0", {LLAMACPP, LEGACY, SGLANG}),
        ("Q6_K", {LLAMACPP, LEGACY, SGLANG}),
        ("Q5_K", {LLAMACPP, LEGACY, SGLANG}),
        ("Q4_K", {LLAMACPP, LEGACY, SGLANG}),
        ("Q3_K", {LLAMACPP, LEGACY, SGLANG}),
        ("Q2_K", {LLAMACPP, LEGACY, SGLANG}),
        # kvcache-ai/ktransformers 1856, 1235, 782, 832.
        ("Q4_1", {LLAMACPP}),
        ("BF16", {LLAMACPP}),
        ("TQ1_0", {LLAMACPP}),
        ("TQ2_0", {LLAMACPP}),
        ("IQ1_S", {LLAMACPP}),
        ("IQ1_M", {LLAMACPP}),
        ("IQ2_XXS", {LLAMACPP}),
        ("IQ3_S", {LLAMACPP}),
        ("IQ4_XS", {LLAMACPP}),
        ("IQ4_NL", {LLAMACPP}),
        ("MXFP4", {LLAMACPP}),
    ],
)
def test_a_type_of_routed_experts_is_read_by_these_engines(kind: str, readers: set[Engine]) -> None:
    inventory = an_inventory(a_weight(EXPERTS, kind))
    assert {engine for engine in Engine if not unreadable(engine, inventory)} == readers


@pytest.mark.parametrize(
    ("kind", "readers"),
    [
        ("Q4_K", {LLAMACPP, LEGACY, SGLANG}),
        # Kt-sglang takes everything but routed experts from safetensors.
        ("BF16", {LLAMACPP, SGLANG}),
        ("IQ4_XS", {LLAMACPP, SGLANG}),
    ],
)
def test_a_type_of_attention_is_read_by_these_engines(kind: str, readers: set[Engine]) -> None:
    inventory = an_inventory(a_weight(ATTENTION, kind))
    assert {engine for engine in Engine if not unreadable(engine, inventory)} == readers


@pytest.mark.parametrize(
    ("architecture", "readers"),
    [
        ("deepseek2", {LLAMACPP, LEGACY, SGLANG}),
        ("qwen3moe", {LLAMACPP, SGLANG}),
        ("qwen2", {LLAMACPP}),
        ("llama", {LLAMACPP}),
        ("glm4moe", {LLAMACPP}),
        ("gpt-oss", set()),
    ],
)
def test_an_architecture_is_read_by_these_engines(architecture: str, readers: set[Engine]) -> None:
    inventory = an_inventory(architecture=architecture)
    assert {engine for engine in Engine if not unreadable(engine, inventory)} == readers


def test_a_reason_names_a_tensor_how_many_more_the_type_the_engine_and_who_says_so() -> None:
    inventory = an_inventory(
        a_weight("blk.2.ffn_up_exps.weight", "IQ2_XXS"), a_weight(EXPERTS, "IQ2_XXS")
    )
    (told,) = unreadable(LEGACY, inventory)
    assert told.startswith(
        "blk.2.ffn_up_exps.weight and 1 more tensors are of type IQ2_XXS, which kt-legacy can't read"
    )
    assert "issues 1856" in told


def test_an_architecture_that_is_not_read_is_told_with_those_that_are() -> None:
    assert unreadable(LEGACY, an_inventory(architecture="llama")) == (
        "the architecture is llama; kt-legacy here reads deepseek2",
    )


NEWER = (
    a_weight("blk.0.attn_k_b.weight", "Q8_0"),
    a_weight("blk.0.attn_v_b.weight", "Q8_0"),
)


def test_both_forms_of_mlas_projection_are_told_apart() -> None:
    older = an_inventory()
    newer = without(an_inventory(*NEWER), "attn_kv_b.weight")
    assert kv_b_of(older) == {KvB.ONE}
    assert kv_b_of(newer) == {KvB.TWO}
    assert kv_b_of(an_inventory(*NEWER)) == {KvB.ONE, KvB.TWO}
    assert kv_b_of(without(older, "attn_kv_b.weight")) == frozenset()


@pytest.mark.parametrize("engine", Engine)
def test_every_engine_here_takes_both_forms(engine: Engine) -> None:
    newer = without(an_inventory(*NEWER), "attn_kv_b.weight")
    assert unreadable(engine, newer) == ()


def test_a_form_that_an_engine_does_not_take_is_told_as_upstream_legacy_would_have_it() -> None:
    upstream = replace(ABILITIES[LEGACY], kv_b=frozenset({KvB.ONE}))
    newer = without(an_inventory(*NEWER), "attn_kv_b.weight")
    assert list(reasons(LEGACY, upstream, newer)) == [
        "its layers hold attn_k_b and attn_v_b, where kt-legacy looks for attn_kv_b"
    ]


def test_mla_without_its_projection_in_any_form_is_told() -> None:
    (told,) = unreadable(LLAMACPP, without(an_inventory(), "attn_kv_b.weight"))
    assert told == "its attention is MLA, but no layer holds attn_k_b and attn_v_b or attn_kv_b"


def test_a_gguf_without_experts_is_of_no_use_to_kt_sglang() -> None:
    dense = without(an_inventory(), "_exps.weight")
    assert not dense.bytes_of(WeightClass.ROUTED_EXPERTS)
    (told,) = unreadable(SGLANG, dense)
    assert "no routed experts" in told
    assert Format.SAFETENSORS in ABILITIES[SGLANG].formats

"""What each rule of a placement takes and saves: hand-calculated, shown in `plan`, and in the budget."""

from typing import Any

import pytest

import fitting
import hosts
from orchestrator.adapters.placement_files import read_form
from orchestrator.core.advice import Advice, advise
from orchestrator.core.inventory import Inventory
from orchestrator.core.kt_legacy.footprint import Footprint, footprints
from orchestrator.core.render_fit import advice_as_record, advice_as_text
from orchestrator.core.settings import Layer

SHIPPED = [fitting.ROOT / "configs/placements"]


def rules(name: str, inventory: Inventory) -> tuple[Footprint, ...]:
    return footprints(read_form(SHIPPED, name), inventory)


def advised(rules: str, profile: str = "deepseek-r1-q4km", **changes: Any) -> Advice:
    options = {"rules": rules, "chunk_tokens": 256}
    chosen = fitting.a_profile(profile, kt_legacy=options, **changes)
    inventory = fitting.deepseek_r1() if profile.startswith("deepseek") else fitting.tinyseek()
    return advise(chosen, (), hosts.h200(), inventory, 0, form=read_form(SHIPPED, rules))


def test_experts_of_three_layers_of_r1_save_22_gb_of_ram_for_19_gb_of_vram() -> None:
    layers, some, rest, embedding, head = rules("experts-on-gpu", fitting.deepseek_r1())
    # config.json: 256 experts of 2048 x 7168, three projections. GGUF: Q4_K packs 256 numbers in 144
    # bytes, Q6_K in 210. Gate and up are Q4_K; down is Q6_K in the first eighth of 61 layers (0-6).
    numbers = 256 * 2048 * 7168
    q4, q6 = numbers * 144 // 256, numbers * 210 // 256
    assert some.ram_saved_bytes == 3 * (2 * q4 + q6) == 21_932_015_616
    assert (some.ram_bytes, some.vram_bytes) == (0, {0: 3 * 3 * numbers * 9 // 16})
    assert some.vram_bytes[0] == 19_025_362_944
    # Of all 58 layers 27 have a down projection of Q6_K.
    everything = 58 * 2 * q4 + 27 * q6 + 31 * q4
    assert rest.ram_bytes == everything - some.ram_saved_bytes == 372_051_542_016
    assert rest.vram_saved_bytes == 55 * 3 * numbers * 9 // 16
    # 129,280 tokens x 7168, 16 bits.
    assert embedding.ram_bytes == embedding.vram_saved_bytes == 1_853_358_080
    assert head.vram_bytes == {0: 1_853_358_080}
    assert (layers.ram_bytes, layers.ram_saved_bytes) == (0, 0)


def test_the_parts_of_tinyseeks_files_are_counted_tensor_by_tensor() -> None:
    layers, experts, embedding, head = rules("single-gpu", fitting.tinyseek())
    # config.json: layers 1-3 have 16 experts of 256 x 256, three projections; down is Q6_K in 2, 3.
    numbers = 16 * 256 * 256
    q4, q6 = numbers * 144 // 256, numbers * 210 // 256
    assert experts.ram_bytes == 3 * 2 * q4 + q4 + 2 * q6 == 5_849_088
    assert experts.vram_saved_bytes == 3 * 3 * numbers * 9 // 16 == 5_308_416
    assert embedding.ram_bytes == 8192 * 256 * 2
    assert head.vram_bytes == {0: 8192 * 256 * 2}
    # Of each layer: q_a, q_b, kv_a and output in 4.5 bits, kv_b in 16; a dense layer of 512, and
    # shared experts of 256 in three. Norms and routers in 32 bits: of a layer two of 256, one of
    # q_lora 256, one of kv_lora 512; of three a router of 16 x 256 and its bias; one behind all.
    attention = 4 * (256 * 256 + 256 * 4 * 192 + 256 * 576 + 4 * 128 * 256)
    feed_forward = 3 * 256 * 512 + 3 * 3 * 256 * 256
    kv_b = 4 * 512 * 4 * 256
    others = 4 * (2 * 256 + 256 + 512) + 3 * (16 * 256 + 16) + 256
    assert layers.vram_bytes == {0: (attention + feed_forward) * 9 // 16 + 2 * kv_b + 4 * others}


@pytest.mark.parametrize("name", ["single-gpu", "single-gpu-no-marlin", "experts-on-gpu"])
def test_rules_and_budget_count_the_same(name: str) -> None:
    advice = advised(name)
    (card,) = advice.budget.vram
    others = {
        "KV cache",
        "activations",
        "CUDA context, kernels and graph",
        "headroom",
        "more while it loads",
    }
    weights = sum(term.size_bytes for term in card.terms if term.name not in others)
    assert sum(found.vram_bytes.get(0, 0) for found in advice.rules) == weights
    held = {"routed experts", "embedding"}
    ram = [term for share in advice.budget.ram for term in share.terms if term.name in held]
    assert sum(found.ram_bytes for found in advice.rules) == sum(term.size_bytes for term in ram)


def test_two_cards_are_budgeted_as_their_rules_split_the_layers() -> None:
    needs = fitting.a_profile("deepseek-r1-q4km-2gpu").needs
    advice = advised("two-gpus", needs=needs.model_dump())
    first, second, *_ = advice.rules
    shares = advice.budget.vram
    for card, (rule, share) in enumerate(zip((first, second), shares, strict=True)):
        attention = next(term for term in share.terms if term.name == "attention")
        assert attention.size_bytes < rule.vram_bytes[card]
    caches = [t.size_bytes for s in shares for t in s.terms if t.name == "KV cache"]
    layers = [sum(rule.rule.covers(n) for n in range(61)) for rule in (first, second)]
    assert (
        caches == [8192 * 1152 * number for number in layers] == [8192 * 1152 * n for n in (30, 31)]
    )


def test_plan_shows_of_every_rule_its_modules_device_kernel_reason_and_bytes() -> None:
    text = advice_as_text(advised("experts-on-gpu"))
    shown = text.partition("Rules of experts-on-gpu")[2].partition("Budget")[0]
    assert (
        shown
        == """, weights alone (GB = 10^9 bytes)
  1  model.layers.* without mlp.experts -> cuda:0, marlin
     takes 10.4 GB of VRAM
               every token passes through all of them
  2  model.layers.3-5.mlp.experts -> cuda:0, marlin
     takes 19.0 GB of VRAM; saves 21.9 GB of RAM
               spare VRAM: these need no RAM, but each token takes longer
  3  model.layers.*.mlp.experts -> cpu, cpu
     takes 372.1 GB of RAM; saves 348.8 GB of VRAM
               the rest, which no card could hold
  4  model.embed_tokens -> cpu, torch
     takes 1.9 GB of RAM; saves 1.9 GB of VRAM
               a token looks up one row: not worth VRAM
  5  lm_head -> cuda:0, torch
     takes 1.9 GB of VRAM
               it decides between tokens: kept in 16 bits

"""
    )


def test_a_placement_that_the_engine_has_no_use_for_is_said_to_be_unused() -> None:
    profile = fitting.a_profile("deepseek-r1-distill-7b-gpu")
    layer = Layer(values={"placement": "experts-on-gpu"}, origins={"placement": "a test"})
    text = advice_as_text(advise(profile, (layer,), hosts.h200(), None, 0))
    assert "No rules: kt-sglang has none, and placement = experts-on-gpu is not used" in text
    assert "No rules" not in advice_as_text(advise(profile, (), hosts.h200(), None, 0))


def test_a_number_of_experts_on_the_gpu_that_kt_legacy_is_not_told_is_said_to_be_unused() -> None:
    profile = fitting.a_profile("deepseek-r1-q4km")
    layer = Layer(values={"gpu_experts": 8}, origins={"gpu_experts": "a test"})
    text = advice_as_text(advise(profile, (layer,), hosts.h200(), None, 0))
    assert "gpu_experts = 8 is not used: kt-legacy is told no number of them" in text
    assert "is not used" not in advice_as_text(advise(profile, (), hosts.h200(), None, 0))


def test_programs_read_the_same_of_every_rule() -> None:
    record = advice_as_record(advised("experts-on-gpu"))["rules"]
    assert record["name"] == "experts-on-gpu"
    assert record["rules"][1] == {
        "modules": "experts",
        "layers": "3-5",
        "device": "cuda:0",
        "kernel": "marlin",
        "why": "spare VRAM: these need no RAM, but each token takes longer",
        "pattern": "model.layers.3-5.mlp.experts",
        "ram_bytes": 0,
        "vram_bytes": 19_025_362_944,
        "ram_saved_bytes": 21_932_015_616,
        "vram_saved_bytes": 0,
    }


def test_other_engines_have_no_rules_to_show() -> None:
    advice = advise(fitting.a_profile("demo"), (), hosts.h200(), fitting.tinyseek(), 0)
    assert advice_as_record(advice)["rules"] is None
    assert "Rules of" not in advice_as_text(advice)

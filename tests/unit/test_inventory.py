"""What headers come to: TinySeek by hand, and small headers of other architectures."""

import io
import json
import struct
from pathlib import Path

import pytest

from images.wire.tests.gguf_files import TensorOf, Value, a_header, tinyseek
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.inventory import (
    Inventory,
    ModelShape,
    WeightClass,
    classify,
    inventory_of,
)
from wire.gguf import read_header

RECORDED = Path(__file__).parents[2] / "images/wire/tests/recorded/tinyseek-q4_k_m.json"


def read(values: dict[str, Value], *tensors: TensorOf) -> Inventory:
    head, data_bytes = a_header(values, tensors)
    return inventory_of({"m.gguf": (read_header(io.BytesIO(head)), len(head) + data_bytes)})


def said(architecture: str, **more: Value) -> dict[str, Value]:
    least: dict[str, Value] = {
        "block_count": 2,
        "embedding_length": 512,
        "attention.head_count": 8,
        "context_length": 4096,
    }
    named = {name.replace("__", "."): value for name, value in more.items()}
    values = {f"{architecture}.{name}": value for name, value in {**least, **named}.items()}
    return {"general.architecture": architecture, **values}


# --- TinySeek ---


def test_tinyseeks_tensors_are_those_that_the_reference_reader_finds() -> None:
    recorded = json.loads(RECORDED.read_bytes())
    tensors = [tensor for shard in recorded.values() for tensor in shard["tensors"]]
    inventory = inventory_of(tinyseek())
    assert [
        [weight.name, weight.type, list(weight.shape), weight.size_bytes]
        for weight in inventory.weights
    ] == [[name, kind, shape, size] for name, kind, shape, _, size in tensors]
    assert inventory.total_bytes == sum(tensor[-1] for tensor in tensors)
    assert inventory.origin == "headers"


def test_tinyseeks_bytes_by_class_are_those_of_its_config() -> None:
    inventory = inventory_of(tinyseek())
    found = {kind: inventory.bytes_of(kind) for kind in WeightClass}
    # Q4_K packs 256 values in 144 bytes, Q6_K in 210. Layer 0 is dense; layers 2 and 3 have Q6_K in
    # their down projections and in attn_kv_b. A projection of all 16 experts: 256 x 256 x 16 values.
    q4, q6 = 256 * 256 // 256 * 144, 256 * 256 // 256 * 210
    assert found[WeightClass.ROUTED_EXPERTS] == 16 * (7 * q4 + 2 * q6)
    assert found[WeightClass.SHARED_EXPERTS] == 7 * q4 + 2 * q6
    assert found[WeightClass.DENSE] == 3 * 2 * q4  # dense_ff is 512
    assert found[WeightClass.EMBEDDING] == 8192 * 144
    assert found[WeightClass.OUTPUT] == 8192 * 210
    # q_a 256 x 256, q_b 256 x 4 heads x 192, kv_a 256 x (512 + 64), output 4 x 128 x 256: in all
    # four layers Q4_K. kv_b 512 x 4 heads x 256.
    each = q4 + 3 * q4 + 576 * 144 + 2 * q4
    assert found[WeightClass.ATTENTION] == 4 * each + 2 * 8 * q4 + 2 * 8 * q6
    assert sum(found.values()) == inventory.total_bytes


def test_tinyseeks_shape_is_that_of_its_config() -> None:
    inventory = inventory_of(tinyseek())
    assert inventory.shape == ModelShape(
        architecture="deepseek2",
        layers=4,
        hidden=256,
        heads=4,
        kv_heads=4,
        key_length=192,
        value_length=128,
        vocabulary=8192,
        trained_context_tokens=4096,
        kv_lora_rank=512,
        q_lora_rank=256,
        rope_length=64,
        experts=16,
        experts_used=4,
        shared_experts=1,
        leading_dense=1,
        expert_ff=256,
        dense_ff=512,
    )


def test_the_size_of_each_file_is_kept() -> None:
    files = tinyseek()
    assert inventory_of(files).file_bytes == {path: size for path, (_, size) in files.items()}


# --- names ---

R, S, A, D = (
    WeightClass.ROUTED_EXPERTS,
    WeightClass.SHARED_EXPERTS,
    WeightClass.ATTENTION,
    WeightClass.DENSE,
)
OTHER = WeightClass.OTHER


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("ffn_gate_exps.weight", R),
        ("ffn_up_exps.weight", R),
        ("ffn_down_exps.weight", R),
        ("ffn_gate_up_exps.weight", R),
        ("ffn_down.7.weight", R),  # Mixtral's files of 2024
        ("ffn_gate_shexp.weight", S),
        ("ffn_up_shexp.weight", S),
        ("ffn_down_shexp.weight", S),
        ("ffn_gate.weight", D),
        ("ffn_up.weight", D),
        ("ffn_down.weight", D),
        ("attn_q.weight", A),
        ("attn_qkv.weight", A),
        ("attn_output.weight", A),
        ("attn_q_a.weight", A),
        ("attn_q_b.weight", A),
        ("attn_kv_a_mqa.weight", A),
        ("attn_kv_b.weight", A),
        ("attn_k_b.weight", A),
        ("attn_v_b.weight", A),
        ("ssm_out.weight", A),
        ("attn_norm.weight", OTHER),
        ("attn_q_norm.weight", OTHER),
        ("attn_q_a_norm.weight", OTHER),
        ("attn_kv_a_norm.weight", OTHER),
        ("post_attention_norm.weight", OTHER),
        ("ffn_norm.weight", OTHER),
        ("ffn_gate_inp.weight", OTHER),
        ("ffn_gate_inp_shexp.weight", OTHER),
        ("exp_probs_b.bias", OTHER),
        ("attn_q.bias", OTHER),
        ("nextn.eh_proj.weight", D),
        ("nextn.embed_tokens.weight", WeightClass.EMBEDDING),
        ("nextn.shared_head_head.weight", WeightClass.OUTPUT),
        ("nextn.enorm.weight", OTHER),
    ],
)
def test_a_tensor_of_a_layer_is_told_by_its_name(part: str, kind: WeightClass) -> None:
    assert classify(f"blk.12.{part}") == (kind, 12)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("token_embd.weight", WeightClass.EMBEDDING),
        ("output.weight", WeightClass.OUTPUT),
        ("output_norm.weight", OTHER),
        ("rope_freqs.weight", OTHER),
    ],
)
def test_a_tensor_outside_the_layers_is_told_by_its_name(name: str, kind: WeightClass) -> None:
    assert classify(name) == (kind, None)


# --- shapes ---


def test_both_ways_to_describe_mla_come_to_the_same_shape() -> None:
    common = {"attention__kv_lora_rank": 512, "attention__q_lora_rank": 1536}
    rope: dict[str, Value] = {"rope__dimension_count": 64, **common}
    older = said(
        "deepseek2",
        attention__head_count_kv=8,
        attention__key_length=192,
        attention__value_length=128,
        **rope,
    )
    newer = said(
        "deepseek2",
        attention__head_count_kv=1,
        attention__key_length=576,
        attention__value_length=512,
        attention__key_length_mla=192,
        attention__value_length_mla=128,
        **rope,
    )
    shape = read(older).shape
    assert shape == read(newer).shape
    assert (shape.kv_heads, shape.key_length, shape.value_length) == (8, 192, 128)
    assert (shape.kv_lora_rank, shape.rope_length) == (512, 64)


def test_a_llama_says_nothing_of_key_lengths_and_vocabulary_and_they_follow() -> None:
    values = said("llama", attention__head_count_kv=2, feed_forward_length=1024)
    shape = read(values, ("token_embd.weight", "F32", (512, 1000))).shape
    # 512 / 8 heads.
    assert (shape.kv_heads, shape.key_length, shape.value_length) == (2, 64, 64)
    assert (shape.vocabulary, shape.dense_ff) == (1000, 1024)
    assert (shape.experts, shape.expert_ff, shape.shared_experts) == (0, 0, 0)


def test_without_a_word_of_kv_heads_every_head_has_its_own() -> None:
    assert read(said("llama")).shape.kv_heads == 8


def test_heads_of_each_layer_come_to_their_mean_rounded_up() -> None:
    # 4 layers with 2, 0, 4 and 3 heads hold 9 in all; 4 x 3 is the least that is no less.
    values = said("llama", block_count=4, attention__head_count_kv=[2, 0, 4, 3])
    assert read(values).shape.kv_heads == 3


def test_a_mixture_of_experts_without_a_count_of_shared_ones_has_those_its_tensors_show() -> None:
    values = said("qwen2moe", expert_count=60, expert_used_count=4, expert_feed_forward_length=1408)
    shared: TensorOf = ("blk.0.ffn_up_shexp.weight", "F32", (512, 8))
    shape = read(values, shared).shape
    assert (shape.experts, shape.experts_used, shape.shared_experts) == (60, 4, 1)
    assert shape.expert_ff == 1408
    assert read(values).shape.shared_experts == 0


def test_an_experts_width_is_that_of_its_tensors_where_the_header_does_not_say() -> None:
    experts: TensorOf = ("blk.0.ffn_up_exps.weight", "F32", (512, 96, 4))
    assert read(said("llama", expert_count=4), experts).shape.expert_ff == 96


def test_layers_that_predict_ahead_are_not_computed() -> None:
    assert read(said("glm4moe", block_count=47, nextn_predict_layers=1)).shape.layers == 46


def test_qwens_keys_need_not_be_a_heads_share_of_the_width() -> None:
    # Qwen3-30B-A3B: 2048 wide, 32 heads of 128.
    values = said(
        "qwen3moe",
        embedding_length=2048,
        attention__head_count=32,
        attention__head_count_kv=4,
        attention__key_length=128,
        attention__value_length=128,
    )
    assert read(values).shape.key_length == 128


# --- what can't be told ---


@pytest.mark.parametrize(
    "lacking", ["block_count", "embedding_length", "attention.head_count", "context_length"]
)
def test_a_header_that_lacks_what_sizes_follow_from_is_refused_naming_it(lacking: str) -> None:
    values = said("llama")
    del values[f"llama.{lacking}"]
    with pytest.raises(BadConfiguration, match=f"does not say llama.{lacking}"):
        read(values)


def test_no_header_with_an_architecture_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="which architecture"):
        read({})


def test_fewer_layers_than_none_are_refused() -> None:
    with pytest.raises(BadConfiguration, match="-1 layers"):
        read(said("glm4moe", block_count=2, nextn_predict_layers=3))


def test_a_type_newer_than_the_table_is_an_error_and_no_guess() -> None:
    head, _ = a_header(said("llama"), [("blk.1.ffn_up.weight", "F32", (8,))])
    # Its side, type and offset.
    newer = head.replace(struct.pack("<QIQ", 8, 0, 0), struct.pack("<QIQ", 8, 99, 0))
    with pytest.raises(BadConfiguration) as caught:
        inventory_of({"m.gguf": (read_header(io.BytesIO(newer)), 1000)})
    assert "blk.1.ffn_up.weight has type 99" in caught.value.why

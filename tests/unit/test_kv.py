"""Bytes a token takes in the KV cache."""

from dataclasses import replace
from typing import Any

from fitting import deepseek_r1, tinyseek
from orchestrator.core.inventory import Inventory, ModelShape
from orchestrator.core.kv import cached_tokens, kv_cache
from orchestrator.core.profile import Engine


def of_shape(**numbers: int) -> Inventory:
    plain: dict[str, Any] = {"hidden": 0, "vocabulary": 0, "trained_context_tokens": 0}
    shape = ModelShape(architecture="llama", **(plain | numbers))
    return Inventory(shape=shape, weights=(), file_bytes={}, origin="headers")


def test_r1_takes_70272_bytes_a_token_where_mla_is_cached_compressed() -> None:
    # 512 of kv_lora + 64 of rope, 61 layers, 2 bytes each: 576 x 61 x 2.
    cache = kv_cache(Engine.KT_LEGACY, deepseek_r1())
    assert cache.bytes_per_token == 70_272
    assert cache.formula == "(512 + 64) x 61 layers x 2 bytes"
    assert kv_cache(Engine.KT_SGLANG, deepseek_r1()).bytes_per_token == 70_272


def test_llamacpp_expands_mla_of_files_with_a_whole_kv_b() -> None:
    # Its log for TinySeek, 4096 tokens: "KV buffer size = 40.00 MiB", so 10,240 bytes a token.
    cache = kv_cache(Engine.LLAMACPP, tinyseek())
    assert cache.bytes_per_token == 40 * 2**20 // 4096
    assert cache.formula == "4 heads x (192 + 128) x 4 layers x 2 bytes"


def test_llamacpp_caches_mla_compressed_where_kv_b_is_split() -> None:
    # Its log for TinySeek with attn_k_b and attn_v_b, 4096 tokens: "KV buffer size = 18.00 MiB".
    old = tinyseek()
    split = tuple(
        replace(weight, name=weight.name.replace("attn_kv_b", half))
        for weight in old.weights
        for half in (("attn_k_b", "attn_v_b") if "attn_kv_b" in weight.name else ("attn_kv_b",))
    )
    new = replace(old, weights=split)
    assert kv_cache(Engine.LLAMACPP, new).bytes_per_token == 18 * 2**20 // 4096


def test_grouped_heads_are_cached_once_a_group() -> None:
    # SmolLM2-135M by its own header. llama.cpp's log, 4096 tokens: "KV buffer size = 90.00 MiB".
    smollm2 = of_shape(layers=30, heads=9, kv_heads=3, key_length=64, value_length=64)
    assert kv_cache(Engine.LLAMACPP, smollm2).bytes_per_token == 90 * 2**20 // 4096


def test_a_cache_has_room_for_whole_pages_of_256_tokens_in_every_slot() -> None:
    assert cached_tokens(2048, 2) == 4096
    assert cached_tokens(2049, 1) == 2304
    assert cached_tokens(300, 3) == 1536

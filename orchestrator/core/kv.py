"""Bytes of KV cache a token takes, by architecture and engine, with the formula in words."""

from dataclasses import dataclass

from orchestrator.core.inventory import Inventory
from orchestrator.core.profile import Engine

ELEMENT_BYTES = 2  # F16 in llama.cpp, BF16 in the KTransformers engines: our engines' defaults
PAGE_TOKENS = 256  # llama.cpp and balance_serve round the tokens of a cache up to a multiple of it


@dataclass(frozen=True, slots=True)
class KvCache:
    """`formula`: bytes of one token, with its numbers."""

    bytes_per_token: int
    formula: str


def kv_cache(engine: Engine, inventory: Inventory) -> KvCache:
    """MLA (`kv_lora_rank` > 0) is cached compressed, unless llama.cpp finds it unsplit."""
    shape = inventory.shape
    if not shape.kv_lora_rank:
        each = shape.kv_heads * (shape.key_length + shape.value_length)
        what = f"{shape.kv_heads} KV heads x ({shape.key_length} + {shape.value_length})"
    elif engine is Engine.LLAMACPP and has_whole_kv_b(inventory):
        # It expands such files: the whole K and V of every head.
        each = shape.heads * (shape.key_length + shape.value_length)
        what = f"{shape.heads} heads x ({shape.key_length} + {shape.value_length})"
    else:
        each = shape.kv_lora_rank + shape.rope_length
        what = f"({shape.kv_lora_rank} + {shape.rope_length})"
    return KvCache(
        each * shape.layers * ELEMENT_BYTES,
        f"{what} x {shape.layers} layers x {ELEMENT_BYTES} bytes",
    )


def cached_tokens(context_tokens: int, slots: int) -> int:
    """What the engine makes room for."""
    return -(-context_tokens // PAGE_TOKENS) * PAGE_TOKENS * slots


def has_whole_kv_b(inventory: Inventory) -> bool:
    """Files of early 2025 have `attn_kv_b`, newer ones `attn_k_b` and `attn_v_b`."""
    return any(weight.name.endswith(".attn_kv_b.weight") for weight in inventory.weights)

"""The two forms in which GGUF files hold MLA's second projection, and how one becomes the other.

Older files have attn_kv_b: for each head its keys' rows, then its values'. Newer ones have the two
apart, the keys' transposed: https://github.com/ggml-org/llama.cpp/pull/12801
"""

from collections.abc import Collection

import torch
from torch import Tensor

KV_B, K_B, V_B = "attn_kv_b.weight", "attn_k_b.weight", "attn_v_b.weight"


def compose(k_b: Tensor, v_b: Tensor) -> Tensor:
    """(heads * (nope + value), lora) from k_b (heads, lora, nope) and v_b (heads, value, lora)."""
    heads, lora, _ = k_b.shape
    if (v_b.shape[0], v_b.shape[2]) != (heads, lora):
        raise ValueError(f"k_b {tuple(k_b.shape)} and v_b {tuple(v_b.shape)} don't belong together")
    return torch.cat([k_b.transpose(1, 2), v_b], dim=1).reshape(-1, lora)


def to_compose(names: Collection[str]) -> dict[str, tuple[str, str]]:
    """kv_b -> k_b and v_b, for each layer that has only the two."""
    found = {}
    for name in names:
        if name.endswith(K_B):
            layer = name.removesuffix(K_B)
            if layer + KV_B not in names and layer + V_B in names:
                found[layer + KV_B] = (name, layer + V_B)
    return found

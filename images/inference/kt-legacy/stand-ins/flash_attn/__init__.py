"""Stands in for flash-attn, which upstream imports whether it is used or not, on torch's own attention."""

from typing import Any

import torch
from torch import Tensor

__version__ = "2.7.0"


NOT_CALLED = "this stand-in has flash_attn_func alone: the engine calls nothing else on this path"


def flash_attn_func(  # noqa: PLR0913, PLR0917 - flash-attn's own
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,  # noqa: FBT001, FBT002 - flash-attn's own
    **_: Any,
) -> Tensor:
    """q, k, v and the result are (batch, tokens, heads, width).

    As in flash-attn the last query sees every key, also where there are more keys than queries.
    torch's own `is_causal` lets the first query see the first key instead.
    """
    queries, keys = q.shape[1], k.shape[1]
    mask = None
    if causal:
        ones = torch.ones(queries, keys, dtype=torch.bool, device=q.device)
        mask = ones.tril(keys - queries)
    mixed: Tensor = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=mask,
        dropout_p=dropout_p,
        scale=softmax_scale,
    )
    return mixed.transpose(1, 2)


def flash_attn_with_kvcache(*_: Any, **__: Any) -> Tensor:
    raise RuntimeError(NOT_CALLED)


def flash_attn_varlen_func(*_: Any, **__: Any) -> Tensor:
    raise RuntimeError(NOT_CALLED)

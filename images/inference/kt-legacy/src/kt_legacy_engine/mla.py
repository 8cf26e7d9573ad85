"""Multi-head latent attention of a chunk of queries over everything that is cached.

As FlashAttention does it, keys in blocks and the softmax rescaled from block to block, so that the
memory needed does not grow with the context. In the absorbed form: queries are taken into the
latent space, in which all heads share their keys and values, so the cache is used as it lies there.
"""

import torch
from torch import Tensor

# Attention scores in memory at once. As 32-bit numbers, with their exponentials: 200 MB.
SCORES = 1 << 24


def attend(  # noqa: PLR0913 - what an attention needs
    q_nope: Tensor,
    q_rope: Tensor,
    latent: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    *,
    scale: float,
    scores: int = SCORES,
) -> Tensor:
    """(queries, heads, value): the queries are the last of the tokens, and see none after them.

    q_nope (queries, heads, nope), q_rope (queries, heads, rope) with their positions applied;
    latent (tokens, lora + rope): the cache up to and with the queries' own tokens;
    w_k (heads, nope, lora), w_v (heads, value, lora): the two halves of kv_b.
    """
    queries, heads, _ = q_nope.shape
    tokens, lora = latent.shape[0], w_k.shape[-1]
    absorbed = torch.einsum("qhn,hnl->qhl", q_nope, w_k)
    rows = torch.cat([absorbed, q_rope], dim=-1).reshape(queries * heads, -1)
    first = tokens - queries
    last_seen = torch.arange(first, tokens, device=latent.device).repeat_interleave(heads)

    highest = torch.full((queries * heads, 1), -torch.inf, device=latent.device)
    weight = torch.zeros_like(highest)
    mixed = torch.zeros((queries * heads, lora), device=latent.device, dtype=highest.dtype)
    block = max(1, scores // (queries * heads))
    for start in range(0, tokens, block):
        keys = latent[start : start + block]
        end = start + keys.shape[0]
        found = _product(rows, keys.T) * scale
        if end > first + 1:
            columns = torch.arange(start, end, device=latent.device)
            found.masked_fill_(columns > last_seen[:, None], -torch.inf)
        # The first block holds token 0, which every query sees: from there on it is finite.
        higher = torch.maximum(highest, found.amax(dim=-1, keepdim=True))
        found = found.sub_(higher).exp_()
        fade = (highest - higher).exp_()
        weight = weight * fade + found.sum(dim=-1, keepdim=True)
        mixed = mixed * fade + _product(found.to(latent.dtype), keys[:, :lora])
        highest = higher
    mixed = (mixed / weight).to(latent.dtype).view(queries, heads, lora)
    return torch.einsum("qhl,hvl->qhv", mixed, w_v)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """In 32 bits: rounded to 16, a score of 20 would be off by 0.06."""
    if left.is_cuda and left.dtype in {torch.bfloat16, torch.float16}:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()

"""The attention's arithmetic, against the textbook's: whole, in pieces, with whatever block size."""

import pytest

torch = pytest.importorskip("torch", reason="torch is installed in the image alone")

from torch import Tensor  # noqa: E402

from flash_attn import flash_attn_func  # noqa: E402
from kt_legacy_engine.mla import attend  # noqa: E402

HEADS, NOPE, ROPE, VALUE, LORA = 3, 16, 8, 12, 32
TOKENS = 37
SCALE = (NOPE + ROPE) ** -0.5


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    return (
        some(TOKENS, HEADS, NOPE),
        some(TOKENS, HEADS, ROPE),
        some(TOKENS, LORA + ROPE),
        some(HEADS, NOPE + VALUE, LORA) / LORA**0.5,
    )


def textbook(q_nope: Tensor, q_rope: Tensor, latent: Tensor, kv_b: Tensor) -> Tensor:
    """Keys and values of every head written out, one softmax over a masked square."""
    expanded = torch.einsum("tl,hrl->htr", latent[:, :LORA], kv_b)
    keys = torch.cat([expanded[..., :NOPE], latent[None, :, LORA:].expand(HEADS, -1, -1)], dim=-1)
    queries = torch.cat([q_nope, q_rope], dim=-1).transpose(0, 1)
    scores = queries @ keys.transpose(1, 2) * SCALE
    future = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    chances = scores.masked_fill(future, -torch.inf).softmax(dim=-1)
    return (chances @ expanded[..., NOPE:]).transpose(0, 1)


@pytest.mark.parametrize("scores", [1, 7 * HEADS, 1 << 24])
@pytest.mark.parametrize("split", [0, 1, 2, 17, TOKENS - 2, TOKENS - 1])
def test_it_is_the_same_wherever_a_prompt_is_split(split: int, scores: int) -> None:
    q_nope, q_rope, latent, kv_b = inputs()
    w_k, w_v = kv_b[:, :NOPE], kv_b[:, NOPE:]
    wanted = textbook(q_nope, q_rope, latent, kv_b)
    parts = [
        attend(q_nope[a:b], q_rope[a:b], latent[:b], w_k, w_v, scale=SCALE, scores=scores)
        for a, b in ((0, split), (split, TOKENS))
        if b > a
    ]
    assert torch.cat(parts).shape == (TOKENS, HEADS, VALUE)
    assert (torch.cat(parts) - wanted).abs().max() < 1e-5


def test_a_second_part_that_forgot_the_first_would_be_noticed() -> None:
    q_nope, q_rope, latent, kv_b = inputs()
    w_k, w_v = kv_b[:, :NOPE], kv_b[:, NOPE:]
    wanted = textbook(q_nope, q_rope, latent, kv_b)[17:]
    found = attend(q_nope[17:], q_rope[17:], latent[17:], w_k, w_v, scale=SCALE)
    assert (found - wanted).abs().max() > 0.1


def test_large_scores_do_not_overflow() -> None:
    q_nope, q_rope, latent, kv_b = inputs()
    found = attend(
        q_nope * 100,
        q_rope * 100,
        latent,
        kv_b[:, :NOPE],
        kv_b[:, NOPE:],
        scale=SCALE,
        scores=7 * HEADS,
    )
    wanted = textbook(q_nope * 100, q_rope * 100, latent, kv_b)
    assert (found - wanted).abs().max() < 1e-3


def test_the_flash_attn_stand_in_aligns_its_mask_to_the_last_key() -> None:
    random = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 9, 2, 8, generator=random) for _ in range(3))
    whole = flash_attn_func(q, k, v, causal=True)
    assert torch.allclose(flash_attn_func(q[:, 5:], k, v, causal=True), whole[:, 5:], atol=1e-6)
    everywhere = flash_attn_func(q[:, 5:], k, v)
    assert not torch.allclose(everywhere, whole[:, 5:], atol=1e-3)

"""One form of the projection out of the other, against TinySeek's own file in both forms."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is installed in the image alone")

from kt_legacy_engine.kv_b import compose, to_compose  # noqa: E402

RECORDED = Path(__file__).parent / "recorded" / "kv-b-tinyseek.npz"


def test_the_two_halves_of_tinyseek_are_its_projection() -> None:
    """Layer 0, every 16th column: the halves as written for llama.cpp, every 8th row of the whole."""
    with np.load(RECORDED) as recorded:
        k_b, v_b, kv_b = (recorded[name] for name in ("k_b", "v_b", "kv_b"))
    found = compose(
        torch.from_numpy(k_b.astype(np.float32)), torch.from_numpy(v_b.astype(np.float32))
    )
    assert found.shape == (4 * (128 + 128), 512 // 16)
    # The halves are stored in 16 bits.
    assert np.abs(found.numpy()[::8] - kv_b).max() < 1e-3


def test_rows_are_a_heads_keys_then_its_values() -> None:
    heads, nope, value, lora = 2, 3, 4, 5
    kv_b = torch.arange(heads * (nope + value) * lora).view(heads, nope + value, lora)
    k_b = kv_b[:, :nope].transpose(1, 2)
    assert torch.equal(compose(k_b, kv_b[:, nope:]), kv_b.view(-1, lora))


def test_halves_of_different_models_are_refused() -> None:
    with pytest.raises(ValueError, match="don't belong together"):
        compose(torch.zeros(2, 5, 3), torch.zeros(2, 4, 6))


def test_only_layers_without_the_older_form_are_composed() -> None:
    names = {
        "blk.0.attn_kv_b.weight",
        "blk.1.attn_k_b.weight",
        "blk.1.attn_v_b.weight",
        "blk.2.attn_k_b.weight",
        "blk.3.attn_kv_b.weight",
        "blk.3.attn_k_b.weight",
        "blk.3.attn_v_b.weight",
    }
    assert to_compose(names) == {
        "blk.1.attn_kv_b.weight": ("blk.1.attn_k_b.weight", "blk.1.attn_v_b.weight")
    }

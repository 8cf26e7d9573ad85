"""Made `recorded.npz`: `python3 -m expert_layer.record`, where gguf and torch are installed.

Both are others' work: the weights are what ggml's own gguf package reads from the blocks, and the layer
is computed by torch, in 32 bits.
"""

from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np
import torch

from expert_layer.drawn import EXPERTS, HIDDEN, INNER, PROMPTS, activations, chosen, q4_k, weights

RECORDED = Path(__file__).with_name("recorded.npz")


def main() -> None:
    gate, up = (_projection(name, INNER, HIDDEN) for name in ("gate", "up"))
    down = _projection("down", HIDDEN, INNER)
    found = {}
    for tokens in PROMPTS:
        content = bytearray(activations(tokens))
        x = torch.frombuffer(content, dtype=torch.bfloat16).view(tokens, HIDDEN).float()
        y = torch.zeros_like(x)
        for token, (experts, shares) in enumerate(
            zip(chosen(tokens), weights(tokens), strict=True)
        ):
            for expert, share in zip(experts, shares, strict=True):
                inner = torch.nn.functional.silu(gate[expert] @ x[token]) * (up[expert] @ x[token])
                y[token] += share * (down[expert] @ inner)
        found[str(tokens)] = y.numpy().astype(np.float16)
    about = f"gguf {version('gguf')}, torch {torch.__version__}"
    np.savez_compressed(RECORDED, about=np.array(about), **found)


def _projection(name: str, rows: int, columns: int) -> torch.Tensor:
    raw = np.frombuffer(q4_k(name), dtype=np.uint8).reshape(EXPERTS * rows, -1)
    read = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.Q4_K)
    return torch.from_numpy(read).view(EXPERTS, rows, columns)


if __name__ == "__main__":
    main()

"""The CPU kernels against torch: `python3 -m kt_legacy_engine.check_kernels [VARIANT] [--numa_copies]`.

It needs no GPU. One layer of experts with random Q4_K weights. Exit code 1 where they differ by more
than 3 %, which is what rounding the activations to 8 bits costs.
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kt_legacy_engine.arguments import AUTO, VARIANTS
from kt_legacy_engine.kernels import choose, cpu_flags

EXPERTS, HIDDEN, INNER, USED = 8, 512, 256, 2
AT_MOST = 0.03
_Q4_K, _BF16 = 12, 30
_BLOCK, _BLOCK_BYTES = 256, 144


def random_q4_k(weights: int, random: np.random.Generator) -> NDArray[np.uint8]:
    """Blocks as a file has them: two scales, twelve bytes of smaller ones, 128 of weights."""
    blocks = weights // _BLOCK
    raw = random.integers(0, 256, (blocks, _BLOCK_BYTES), dtype=np.uint8)
    scales = random.random((blocks, 2)) * [2e-3, 1e-2]
    raw[:, :4] = scales.astype(np.float16).view(np.uint8)
    return raw


def dequantized(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Eight groups of 32 weights: d * scale * weight - dmin * minimum, of 6, 4 and 6 bits."""
    d, dmin = raw[:, :4].copy().view(np.float16).astype(np.float32).T
    low, middle, high = (raw[:, 4 + 4 * n : 8 + 4 * n].astype(np.int32) for n in range(3))
    scale = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=1)
    minimum = np.concatenate([middle & 63, (high >> 4) | (middle >> 6 << 4)], axis=1)
    pairs = raw[:, 16:].reshape(-1, 4, 1, 32)
    weights = np.concatenate([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32)
    found = (d[:, None] * scale)[..., None] * weights - (dmin[:, None] * minimum)[..., None]
    return np.asarray(found, dtype=np.float32).reshape(-1)


def main(variant: str, *, numa_copies: bool) -> int:
    flags = cpu_flags(Path("/proc/cpuinfo").read_text(encoding="ascii"))
    kernels_dir = Path(os.environ.get("KERNELS_DIR", "/opt/kt/cpu"))
    folder, why = choose(variant, flags, kernels_dir, numa_copies=numa_copies)
    sys.path.insert(0, str(folder))
    error = _error()
    print(f"{why}: {100 * error:.2f} % from torch")  # noqa: T201
    return int(not error <= AT_MOST)


def _error() -> float:
    """The largest mean difference, over prompts of several lengths."""
    import cpuinfer_ext  # noqa: PLC0415 - which one, is only known now

    random = np.random.default_rng(0)
    raw = [random_q4_k(EXPERTS * HIDDEN * INNER, random) for _ in range(3)]
    shapes = ((EXPERTS, INNER, HIDDEN), (EXPERTS, INNER, HIDDEN), (EXPERTS, HIDDEN, INNER))
    gate, up, down = (
        torch.from_numpy(dequantized(one)).view(shape)
        for one, shape in zip(raw, shapes, strict=True)
    )
    # One thread more than computes.
    pool = cpuinfer_ext.CPUInfer(len(os.sched_getaffinity(0)) + 1)
    pointers = [one.ctypes.data for one in raw]
    config = cpuinfer_ext.moe.MOEConfig(
        EXPERTS, USED, HIDDEN, INNER, 64, 10, 1024, *pointers, _Q4_K, _Q4_K, _Q4_K, _BF16
    )
    layer = cpuinfer_ext.moe.MOE(config)
    torch.manual_seed(0)
    errors = []
    for tokens in (1, 3, 32):
        x = (torch.randn(tokens, HIDDEN) / 10).to(torch.bfloat16)
        chosen = torch.stack([torch.randperm(EXPERTS)[:USED] for _ in range(tokens)]).contiguous()
        weights = torch.rand(tokens, USED)
        found = torch.zeros_like(x)
        places = [tensor.data_ptr() for tensor in (chosen, weights, x, found)]
        pool.submit(layer.forward(tokens, USED, *places))
        pool.sync()
        wanted = _wanted(x.float(), chosen, weights, gate, up, down)
        errors.append(float((found.float() - wanted).abs().mean() / wanted.abs().mean()))
    return max(errors)


def _wanted(  # noqa: PLR0913, PLR0917 - what a layer of experts has
    x: Tensor, chosen: Tensor, weights: Tensor, gate: Tensor, up: Tensor, down: Tensor
) -> Tensor:
    found = torch.zeros_like(x)
    for token, experts in enumerate(chosen.tolist()):
        for place, expert in enumerate(experts):
            inner = torch.nn.functional.silu(gate[expert] @ x[token]) * (up[expert] @ x[token])
            found[token] += weights[token, place] * (down[expert] @ inner)
    return found


if __name__ == "__main__":
    words = sys.argv[1:]
    copies = "--numa_copies" in words
    sys.exit(main(next((word for word in words if word in VARIANTS), AUTO), numa_copies=copies))

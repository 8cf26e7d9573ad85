"""The layers that Marlin packs: how many, of how many numbers, and how often they are on the GPU."""

from collections.abc import Mapping

from gpu.synthetic_model import Shape
from orchestrator.core.kt_legacy.footprint import MARLIN_BITS


def linears_of(shape: Shape) -> int:
    """Four of attention, three of the dense network or of the shared expert. kv_b is torch's."""
    return shape.layers * (4 + 3)


def packed_numbers(shape: Shape) -> int:
    """Weights of those layers."""
    per_head = shape.nope + shape.rope
    attention = (
        shape.hidden * (shape.q_lora + shape.kv_lora + shape.rope)
        + shape.q_lora * shape.heads * per_head
        + shape.heads * shape.value * shape.hidden
    )
    experts = shape.layers - shape.dense_layers
    mlp = 3 * shape.hidden * (shape.dense_ff * shape.dense_layers + shape.expert_ff * experts)
    return shape.layers * attention + mlp


def times_on_gpu(shape: Shape, weights: Mapping[str, int]) -> float:
    """How often the layers' 4-bit weights are on the GPU, from its bytes: all else is there once.

    `weights`: bytes that the budget says, which has each layer once, and that torch had allocated.
    """
    packed = packed_numbers(shape) * MARLIN_BITS / 8
    return float(1 + (weights["found_bytes"] - weights["budget_bytes"]) / packed)

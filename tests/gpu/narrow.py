"""A model of DeepSeek's kind that is written in a moment."""

from pathlib import Path

from gpu.synthetic_model import Shape

HF = Path(__file__).parents[1] / "fixtures/tinyseek/hf"
NARROW = Shape(
    layers=3,
    hidden=256,
    heads=2,
    q_lora=256,
    kv_lora=256,
    dense_ff=512,
    expert_ff=256,
    experts=8,
    experts_used=2,
    vocabulary=8500,
)

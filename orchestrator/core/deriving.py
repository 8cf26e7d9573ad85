"""The tensors of a model whose headers can't be read: from its public config and llama.cpp's type rule.

DeepSeek-V3 and R1 only, as quantised with llama.cpp of early 2025 (one `attn_kv_b`, no layer that
predicts ahead). The published size of the files decides whether that is what they are.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.core.inventory import Inventory, ModelShape, Weight, WeightClass, classify
from orchestrator.core.profile import Model
from wire.ggml_types import GGML_TYPES

# config.json of deepseek-ai/DeepSeek-R1 and DeepSeek-V3. Keys of MLA: 128 without position, 64 with.
DEEPSEEK_V3 = ModelShape(
    architecture="deepseek2",
    layers=61,
    hidden=7168,
    heads=128,
    kv_heads=128,
    key_length=192,
    value_length=128,
    vocabulary=129_280,
    trained_context_tokens=163_840,
    kv_lora_rank=512,
    q_lora_rank=1536,
    rope_length=64,
    experts=256,
    experts_used=8,
    shared_experts=1,
    leading_dense=3,
    expert_ff=2048,
    dense_ff=18_432,
    yarn=True,
)
_FAMILY_PARAMETERS = range(670_000_000_000, 672_000_000_000)  # 671 billion, as published

# Files hold their headers too: 5.3 MB for R1, nearly all of it the tokenizer. Twice that, and what a
# size published as "404.43 GB" may be off by; in 404 GB it is 0.004 %.
_MOST_HEADER_BYTES = 16_000_000

_PACKED: Mapping[str, tuple[int, int]] = {
    name: (block, block_bytes) for name, block, block_bytes in GGML_TYPES.values()
}


@dataclass(frozen=True, slots=True)
class _Mixture:
    """A quantisation of llama-quantize: the type of most tensors, and those of the others.

    `down`: of the down projections in layers that get more bits.
    """

    most: str
    down: str
    output: str = "Q6_K"


_MIXTURES = {
    "Q4_K_M": _Mixture("Q4_K", down="Q6_K"),
    "Q5_K_M": _Mixture("Q5_K", down="Q6_K"),
    "Q6_K": _Mixture("Q6_K", down="Q6_K"),
    "Q8_0": _Mixture("Q8_0", down="Q8_0", output="Q8_0"),
}


def derived(model: Model) -> Inventory | None:
    """None where the rule is not known to be this model's, or where its published size says otherwise."""
    mixture = _MIXTURES.get(model.quantisation)
    if (
        mixture is None
        or model.architecture != DEEPSEEK_V3.architecture
        or model.parameters not in _FAMILY_PARAMETERS
    ):
        return None
    inventory = Inventory(
        shape=DEEPSEEK_V3,
        weights=tuple(_weights(DEEPSEEK_V3, mixture)),
        file_bytes={},
        origin="derived",
    )
    headers_bytes = model.total_bytes - inventory.total_bytes
    return inventory if 0 < headers_bytes <= _MOST_HEADER_BYTES else None


def gets_more_bits(layer: int, layers: int) -> bool:
    """The first and the last eighth of the layers, and every third of those between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2  # noqa: PLR2004


def _weights(shape: ModelShape, mixture: _Mixture) -> Iterator[Weight]:
    """In the order of the files: by layer, those outside layers first, and in a layer by name."""
    yield _weight("output.weight", (shape.hidden, shape.vocabulary), mixture.output)
    yield _weight("output_norm.weight", (shape.hidden,), "F32")
    yield _weight("token_embd.weight", (shape.hidden, shape.vocabulary), mixture.most)
    for layer in range(shape.layers):
        more = gets_more_bits(layer, shape.layers)
        for part, sizes in sorted(_layer(shape, dense=layer < shape.leading_dense).items()):
            name = f"blk.{layer}.{part}"
            kind, _ = classify(name)
            if kind is WeightClass.OTHER:
                yield _weight(name, sizes, "F32")
            elif part.startswith("ffn_down") and more:
                yield _weight(name, sizes, mixture.down)
            else:
                yield _weight(name, sizes, mixture.most)


def _layer(shape: ModelShape, *, dense: bool) -> Mapping[str, tuple[int, ...]]:
    hidden, heads, cached = shape.hidden, shape.heads, shape.kv_lora_rank
    per_head = shape.key_length - shape.rope_length + shape.value_length
    attention = {
        "attn_norm.weight": (hidden,),
        "attn_q_a.weight": (hidden, shape.q_lora_rank),
        "attn_q_a_norm.weight": (shape.q_lora_rank,),
        "attn_q_b.weight": (shape.q_lora_rank, heads * shape.key_length),
        "attn_kv_a_mqa.weight": (hidden, cached + shape.rope_length),
        "attn_kv_a_norm.weight": (cached,),
        "attn_kv_b.weight": (cached, heads * per_head),
        "attn_output.weight": (heads * shape.value_length, hidden),
        "ffn_norm.weight": (hidden,),
    }
    if dense:
        return {**attention, **_projections("", hidden, shape.dense_ff)}
    return {
        **attention,
        "ffn_gate_inp.weight": (hidden, shape.experts),
        "exp_probs_b.bias": (shape.experts,),
        **_projections("_exps", hidden, shape.expert_ff, shape.experts),
        **_projections("_shexp", hidden, shape.shared_experts * shape.expert_ff),
    }


def _projections(of: str, hidden: int, inner: int, *copies: int) -> Mapping[str, tuple[int, ...]]:
    return {
        f"ffn_gate{of}.weight": (hidden, inner, *copies),
        f"ffn_up{of}.weight": (hidden, inner, *copies),
        f"ffn_down{of}.weight": (inner, hidden, *copies),
    }


def _weight(name: str, shape: tuple[int, ...], kind: str) -> Weight:
    block, block_bytes = _PACKED[kind]
    of, layer = classify(name)
    rows = 1
    for size in shape[1:]:
        rows *= size
    return Weight(
        name=name,
        type=kind,
        shape=shape,
        size_bytes=shape[0] // block * block_bytes * rows,
        kind=of,
        layer=layer,
    )

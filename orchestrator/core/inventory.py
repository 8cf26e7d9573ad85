"""What a model's files hold, by class: read from their headers, or derived from a public config."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from orchestrator.core.errors import BadConfiguration
from wire.gguf import Header, Tensor


class WeightClass(str, Enum):
    """What a tensor is for, and so on which device it may live."""

    ROUTED_EXPERTS = "routed experts"
    SHARED_EXPERTS = "shared experts"
    ATTENTION = "attention"
    DENSE = "dense layers"
    EMBEDDING = "embedding"
    OUTPUT = "output"
    OTHER = "norms and routers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One tensor. `shape` as GGUF has it: the fastest dimension first. `layer`: None outside layers."""

    name: str
    type: str
    shape: tuple[int, ...]
    size_bytes: int
    kind: WeightClass
    layer: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The numbers of an architecture that sizes follow from; 0 where a model has no such part.

    `yarn`: its context was stretched so, which changes how positions are counted.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    key_length: int
    value_length: int
    vocabulary: int
    trained_context_tokens: int
    kv_lora_rank: int = 0
    q_lora_rank: int = 0
    rope_length: int = 0
    experts: int = 0
    experts_used: int = 0
    shared_experts: int = 0
    leading_dense: int = 0
    expert_ff: int = 0
    dense_ff: int = 0
    yarn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All tensors of one model. `origin`: read from headers, or derived where none can be read.

    `file_bytes`: path -> size of each file; empty where it was derived.
    """

    shape: ModelShape
    weights: tuple[Weight, ...]
    file_bytes: Mapping[str, int]
    origin: Literal["headers", "derived"]

    def bytes_of(self, *kinds: WeightClass) -> int:
        return sum(weight.size_bytes for weight in self.weights if weight.kind in kinds)

    @property
    def total_bytes(self) -> int:
        return sum(weight.size_bytes for weight in self.weights)

    @property
    def types(self) -> frozenset[str]:
        return frozenset(weight.type for weight in self.weights)


_LAYER = re.compile(r"blk\.(?P<layer>\d{1,4})\.(?P<part>.+)")
# The first that fits decides. Biases, norms and routers are small, whatever they belong to.
_PARTS = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r".*\.bias", WeightClass.OTHER),
        (r"(.*_)?norm\.weight|.*_inp(_shexp)?\..*", WeightClass.OTHER),
        (r"ffn_.*_(ch)?exps\..*|ffn_(gate|up|down)\.\d+\..*", WeightClass.ROUTED_EXPERTS),
        (r"ffn_.*_shexp\..*", WeightClass.SHARED_EXPERTS),
        (r"(attn_|ssm_|indexer\.).*", WeightClass.ATTENTION),
        (r"ffn_(gate|up|down|gate_up)\..*|nextn\.eh_proj\..*", WeightClass.DENSE),
        (r"nextn\.embed_tokens\..*", WeightClass.EMBEDDING),
        (r"nextn\.shared_head_head\..*", WeightClass.OUTPUT),
    )
)
_OUTSIDE_LAYERS = {
    "token_embd.weight": WeightClass.EMBEDDING,
    "per_layer_token_embd.weight": WeightClass.EMBEDDING,
    "position_embd.weight": WeightClass.EMBEDDING,
    "output.weight": WeightClass.OUTPUT,
}


def inventory_of(headers: Mapping[str, tuple[Header, int]]) -> Inventory:
    """What the files of one model hold: path -> header and size of the file.

    The headers must be whole and free of contradictions: see `wire.gguf_checks.problems`. Raises
    BadConfiguration where they leave open what sizes follow from.
    """
    weights = tuple(
        _weight(tensor) for _, (header, _) in sorted(headers.items()) for tensor in header.tensors
    )
    first = next((h for h, _ in headers.values() if h.architecture is not None), None)
    if first is None:
        raise _unusable("no header says which architecture the model has")
    return Inventory(
        shape=_shape(first, weights),
        weights=weights,
        file_bytes={path: size for path, (_, size) in sorted(headers.items())},
        origin="headers",
    )


def classify(name: str) -> tuple[WeightClass, int | None]:
    """What the tensor of this name is for, and its layer."""
    found = _LAYER.fullmatch(name)
    if found is None:
        return _OUTSIDE_LAYERS.get(name, WeightClass.OTHER), None
    kinds = (kind for pattern, kind in _PARTS if pattern.fullmatch(found["part"]))
    return next(kinds, WeightClass.OTHER), int(found["layer"])


def _weight(tensor: Tensor) -> Weight:
    kind, layer = classify(tensor.name)
    if tensor.size_bytes is None:
        raise BadConfiguration(
            "the model has a tensor whose size can't be told",
            why=f"{tensor.name} has {tensor.type}, which is newer than this version's table of "
            "GGUF types",
            next_step="choose another quantisation of the model, or a newer version of this program",
        )
    return Weight(
        name=tensor.name,
        type=tensor.type,
        shape=tensor.shape,
        size_bytes=tensor.size_bytes,
        kind=kind,
        layer=layer,
    )


def _shape(header: Header, weights: tuple[Weight, ...]) -> ModelShape:
    """Sizes from what a header says of its architecture, in whichever way it says it.

    Of layers that only predict ahead (`nextn_predict_layers`) nothing is computed, so they don't
    count. Of MLA older files give the heads, newer ones what is cached (one head of kv_lora_rank +
    rope) and the heads in `*_mla`: here it is the heads in both cases.
    """
    said = _Said(header)
    heads = said.needed("attention.head_count")
    hidden = said.needed("embedding_length")
    mla = said.number("attention.kv_lora_rank") > 0
    key = said.number("attention.key_length", hidden // heads)
    value = said.number("attention.value_length", hidden // heads)
    return ModelShape(
        architecture=str(header.architecture),
        layers=said.layers(),
        hidden=hidden,
        heads=heads,
        kv_heads=heads if mla else said.mean("attention.head_count_kv", heads),
        key_length=said.number("attention.key_length_mla", key),
        value_length=said.number("attention.value_length_mla", value),
        vocabulary=_rows(weights, "token_embd.weight") or said.number("vocab_size"),
        trained_context_tokens=said.needed("context_length"),
        kv_lora_rank=said.number("attention.kv_lora_rank"),
        q_lora_rank=said.number("attention.q_lora_rank"),
        rope_length=said.number("rope.dimension_count"),
        experts=said.number("expert_count"),
        experts_used=said.number("expert_used_count"),
        shared_experts=said.number("expert_shared_count", int(_has_shared_experts(weights))),
        leading_dense=said.number("leading_dense_block_count"),
        expert_ff=said.number("expert_feed_forward_length", _rows(weights, "ffn_up_exps.weight")),
        dense_ff=said.number("feed_forward_length"),
        yarn=header.values.get(f"{header.architecture}.rope.scaling.type") == "yarn",
    )


class _Said:
    """Numbers of the model's own architecture; of one for each layer, the largest."""

    def __init__(self, header: Header) -> None:
        self._header = header

    def _all(self, name: str) -> tuple[int, ...]:
        if (found := self._header.of_architecture(name)) is not None:
            return (found,)
        several = self._header.lists.get(f"{self._header.architecture}.{name}", ())
        return tuple(number for number in several if isinstance(number, int))

    def number(self, name: str, default: int = 0) -> int:
        return max(0, max(self._all(name), default=default))

    def needed(self, name: str) -> int:
        if (found := self.number(name)) == 0:
            raise _unusable(f"its header does not say {self._header.architecture}.{name}")
        return found

    def mean(self, name: str, default: int) -> int:
        """Rounded up: times the number of layers it is no less than the sum."""
        found = self._all(name)
        return max(0, -(-sum(found) // len(found))) if found else default

    def layers(self) -> int:
        if (found := self.needed("block_count") - self.number("nextn_predict_layers")) <= 0:
            raise _unusable(f"by its header it has {found} layers")
        return found


def _rows(weights: Iterable[Weight], name: str) -> int:
    """The second dimension of the first tensor of that name, in whichever layer."""
    named = (w for w in weights if w.name == name or w.name.endswith(f".{name}"))
    return next((weight.shape[1] for weight in named if len(weight.shape) > 1), 0)


def _has_shared_experts(weights: Iterable[Weight]) -> bool:
    return any(weight.kind is WeightClass.SHARED_EXPERTS for weight in weights)


def _unusable(why: str) -> BadConfiguration:
    return BadConfiguration(
        "the model's headers don't say enough to tell what it takes",
        why=why,
        next_step="choose another quantisation or publisher of the model",
    )

"""The modules of a model of DeepSeek-V3's architecture, as the engine names them."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from orchestrator.core.inventory import ModelShape


class Kind(str, Enum):
    """What a module is. Values are the classes that rules can match."""

    LINEAR = "torch.nn.Linear"
    EMBEDDING = "torch.nn.Embedding"
    ATTENTION = "ktransformers.models.modeling_deepseek_v3.DeepseekV3Attention"
    ROTARY = "ktransformers.models.modeling_deepseek_v3.DeepseekV3RotaryEmbedding"
    NORM = "ktransformers.models.modeling_deepseek_v3.DeepseekV3RMSNorm"
    DENSE = "ktransformers.models.modeling_deepseek_v3.DeepseekV3MLP"
    MOE = "ktransformers.models.modeling_deepseek_v3.DeepseekV3MoE"
    ROUTER = "ktransformers.models.modeling_deepseek_v3.MoEGate"
    EXPERTS = "torch.nn.ModuleList"
    LAYER = "ktransformers.models.modeling_deepseek_v3.DeepseekV3DecoderLayer"
    MODEL = "ktransformers.models.modeling_deepseek_v3.DeepseekV3Model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """`dense_layers`: the first ones, which have no experts. `yarn`: its context was stretched so."""

    layers: int
    dense_layers: int
    yarn: bool
    query_lora: bool = True

    @property
    def expert_layers(self) -> range:
        return range(self.dense_layers, self.layers)


def tree_of(shape: ModelShape) -> Tree:
    return Tree(
        layers=shape.layers,
        dense_layers=shape.leading_dense,
        yarn=shape.yarn,
        query_lora=shape.q_lora_rank > 0,
    )


@dataclass(frozen=True, slots=True)
class Module:
    """`layer`: None outside layers."""

    name: str
    kind: Kind
    layer: int | None


def modules(tree: Tree) -> Iterator[Module]:
    """All that rules can place. Single experts are not: they are placed together."""
    yield Module("model", Kind.MODEL, None)
    yield Module("model.embed_tokens", Kind.EMBEDDING, None)
    for layer in range(tree.layers):
        name = f"model.layers.{layer}"
        yield Module(name, Kind.LAYER, layer)
        yield from _attention(f"{name}.self_attn", layer, tree)
        yield from _feed_forward(f"{name}.mlp", layer, tree)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield Module(f"{name}.{norm}", Kind.NORM, layer)
    yield Module("model.norm", Kind.NORM, None)
    yield Module("lm_head", Kind.LINEAR, None)


def _attention(name: str, layer: int, tree: Tree) -> Iterator[Module]:
    yield Module(name, Kind.ATTENTION, layer)
    linears = ["kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]
    norms = ["kv_a_layernorm"]
    if tree.query_lora:
        linears += ["q_a_proj", "q_b_proj"]
        norms.append("q_a_layernorm")
    else:
        linears.append("q_proj")
    yield from (Module(f"{name}.{linear}", Kind.LINEAR, layer) for linear in linears)
    yield from (Module(f"{name}.{norm}", Kind.NORM, layer) for norm in norms)
    yield Module(f"{name}.rotary_emb", Kind.ROTARY, layer)


def _feed_forward(name: str, layer: int, tree: Tree) -> Iterator[Module]:
    if layer not in tree.expert_layers:
        yield Module(name, Kind.DENSE, layer)
        yield from _gated(name, layer)
        return
    yield Module(name, Kind.MOE, layer)
    yield Module(f"{name}.gate", Kind.ROUTER, layer)
    yield Module(f"{name}.experts", Kind.EXPERTS, layer)
    yield Module(f"{name}.shared_experts", Kind.DENSE, layer)
    yield from _gated(f"{name}.shared_experts", layer)


def _gated(name: str, layer: int) -> Iterator[Module]:
    for linear in ("gate_proj", "up_proj", "down_proj"):
        yield Module(f"{name}.{linear}", Kind.LINEAR, layer)

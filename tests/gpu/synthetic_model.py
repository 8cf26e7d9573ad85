"""A model of DeepSeek-V3's full width with few layers and weights of no meaning, written on the spot.

GGUF of the older form, quantised as Q4_K_M is: only the embedding is F16, which saves ten seconds of
every load. One shard for each layer and a last one for what stands outside of layers. Numbers in
quantised blocks are random with a spread that keeps activations finite; the rest of a block is the
same everywhere, so that a tile of blocks can be written again and again.
"""

import json
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpu.proven import Weights, folder_of, receipted
from images.wire.tests.gguf_files import (
    Short,
    Signed,
    TensorOf,
    Value,
    a_header,
    tensor_bytes,
)
from orchestrator.core.kt_legacy.tree import Tree

REPO = "synthetic/deepseek-v3-width"
_TILE_BYTES = 8 << 20
_SPREAD = 0.01
_WRITERS = 4


@dataclass(frozen=True, kw_only=True)
class Shape:
    """DeepSeek-V3's, but for the number of layers."""

    layers: int
    dense_layers: int = 1
    hidden: int = 7168
    heads: int = 128
    nope: int = 128
    rope: int = 64
    value: int = 128
    q_lora: int = 1536
    kv_lora: int = 512
    dense_ff: int = 18_432
    expert_ff: int = 2048
    experts: int = 256
    experts_used: int = 8
    groups: int = 8
    groups_used: int = 4
    vocabulary: int = 129_280
    context: int = 163_840
    newer: bool = False
    """With `attn_k_b` and `attn_v_b`, which llama.cpp caches compressed: kt-legacy's is the other."""

    @property
    def tree(self) -> Tree:
        return Tree(layers=self.layers, dense_layers=self.dense_layers, yarn=True)


def write(
    shape: Shape, tinyseek: Path, work: Path, deadline_s: float, *, for_llamacpp: bool = False
) -> Weights:
    """Nothing but this program makes these files, so their lock needs no digest: it has zeros."""
    folder = work / folder_of(REPO)
    more = _for_llamacpp(shape) if for_llamacpp else {}
    names = _write_shards(shape, more, folder / "weights", deadline_s)
    (folder / "hf").mkdir(parents=True, exist_ok=True)
    _write_config(shape, tinyseek, folder / "hf")
    paths = [f"weights/{name}" for name in names]
    paths += [f"hf/{path.name}" for path in sorted((folder / "hf").iterdir())]
    found = receipted(REPO, work, dict.fromkeys(paths, "0" * 64))
    return replace(found, model_dir="hf")


def header_and_size(shape: Shape) -> tuple[bytes, int]:
    """As if all were in one file for llama.cpp: its header, and how many bytes it would have."""
    tensors = [one for layer in range(shape.layers) for one in _of_layer(shape, layer)]
    head, data = a_header(_metadata(shape) | _for_llamacpp(shape), [*tensors, *_outside(shape)])
    return head, len(head) + data


def _write_shards(
    shape: Shape, more: dict[str, Value], folder: Path, deadline_s: float
) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    shards = [list(_of_layer(shape, layer)) for layer in range(shape.layers)]
    shards.append(list(_outside(shape)))
    tiles = Tiles()
    names = [f"synthetic-{n:05}-of-{len(shards):05}.gguf" for n in range(1, len(shards) + 1)]

    def one(number: int) -> None:
        split: dict[str, Value] = {
            "split.no": Short(number),
            "split.count": Short(len(shards)),
            "split.tensors.count": Signed(sum(map(len, shards))),
        }
        said = _metadata(shape) | more | split if number == 0 else split
        _write_shard(folder / names[number], said, shards[number], tiles, deadline_s)

    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(one, range(len(shards))))
    return names


def _write_shard(
    path: Path, said: dict[str, Value], tensors: list[TensorOf], tiles: "Tiles", deadline_s: float
) -> None:
    head, _ = a_header(said, tensors)
    with path.open("wb", buffering=0) as file:
        file.write(head)
        for name, kind, shape in tensors:
            left = tensor_bytes(kind, shape)
            tile, padding = tiles.of(name, kind), -left % 32
            while left > 0:
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"{path.name} was not written in time")
                left -= file.write(tile[: min(left, len(tile))])
            file.write(bytes(padding))


class Tiles:
    """Some megabytes of blocks of each type, made once."""

    def __init__(self) -> None:
        random = np.random.default_rng(6)
        self._made = {
            "Q4_K": memoryview(q4_k(_TILE_BYTES // 144, random).tobytes()),
            "Q6_K": memoryview(q6_k(_TILE_BYTES // 210, random).tobytes()),
            "F16": _numbers(random, np.float16),
            "F32": _numbers(random, np.float32),
            "ones": memoryview(np.ones(_TILE_BYTES // 4, dtype=np.float32).tobytes()),
            "zeros": memoryview(bytes(_TILE_BYTES)),
        }

    def of(self, name: str, kind: str) -> "memoryview[int]":
        if name.endswith(".bias"):
            return self._made["zeros"]
        return self._made["ones" if name.endswith("norm.weight") else kind]


def q4_k(blocks: int, random: np.random.Generator) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """256 numbers of 4 bits: (q - 7.5) x 32 x d, since all scales and all minima are 32."""
    found = random.integers(0, 256, (blocks, 144), dtype=np.uint8)
    scale = _SPREAD / 4.6 / 32
    found[:, :4] = np.array([scale, 7.5 * scale], dtype=np.float16).view(np.uint8)
    # The lower 6 bits of eight bytes are 32, and so are those made of the rest: 2 x 16 + 0.
    found[:, 4:12] = 0xA0
    found[:, 12:16] = 0
    return found


def q6_k(blocks: int, random: np.random.Generator) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """256 numbers of 6 bits: (q - 32) x 4 x d."""
    found = random.integers(0, 256, (blocks, 210), dtype=np.uint8)
    found[:, 192:208] = 4
    found[:, 208:] = np.array([_SPREAD / 18.5 / 4], dtype=np.float16).view(np.uint8)
    return found


def _numbers(random: np.random.Generator, kind: Any) -> "memoryview[int]":
    count = _TILE_BYTES // np.dtype(kind).itemsize
    return memoryview(random.normal(0, _SPREAD, count).astype(kind).tobytes())


def _of_layer(shape: Shape, layer: int) -> Iterator[TensorOf]:
    hidden, heads = shape.hidden, shape.heads
    for name, kind, sizes in (
        ("attn_norm", "F32", (hidden,)),
        ("attn_q_a", "Q4_K", (hidden, shape.q_lora)),
        ("attn_q_a_norm", "F32", (shape.q_lora,)),
        ("attn_q_b", "Q4_K", (shape.q_lora, heads * (shape.nope + shape.rope))),
        ("attn_kv_a_mqa", "Q4_K", (hidden, shape.kv_lora + shape.rope)),
        ("attn_kv_a_norm", "F32", (shape.kv_lora,)),
        *_kv_b(shape),
        ("attn_output", "Q4_K", (heads * shape.value, hidden)),
        ("ffn_norm", "F32", (hidden,)),
    ):
        yield f"blk.{layer}.{name}.weight", kind, sizes
    # Q4_K_M spends more bits on half of the layers' down projections.
    down = "Q6_K" if layer % 2 else "Q4_K"
    if layer < shape.dense_layers:
        yield from _gated(f"blk.{layer}.ffn_", "", hidden, shape.dense_ff, (), down)
        return
    yield f"blk.{layer}.ffn_gate_inp.weight", "F32", (hidden, shape.experts)
    yield f"blk.{layer}.exp_probs_b.bias", "F32", (shape.experts,)
    yield from _gated(f"blk.{layer}.ffn_", "_shexp", hidden, shape.expert_ff, (), down)
    experts = (shape.experts,)
    yield from _gated(f"blk.{layer}.ffn_", "_exps", hidden, shape.expert_ff, experts, down)


def _kv_b(shape: Shape) -> tuple[TensorOf, ...]:
    if not shape.newer:
        return (("attn_kv_b", "Q4_K", (shape.kv_lora, shape.heads * (shape.nope + shape.value))),)
    return (
        ("attn_k_b", "F16", (shape.nope, shape.kv_lora, shape.heads)),
        ("attn_v_b", "F16", (shape.kv_lora, shape.value, shape.heads)),
    )


def _gated(  # noqa: PLR0913, PLR0917 - three tensors in one line each
    prefix: str, suffix: str, hidden: int, width: int, experts: tuple[int, ...], down: str
) -> Iterator[TensorOf]:
    yield f"{prefix}gate{suffix}.weight", "Q4_K", (hidden, width, *experts)
    yield f"{prefix}up{suffix}.weight", "Q4_K", (hidden, width, *experts)
    yield f"{prefix}down{suffix}.weight", down, (width, hidden, *experts)


def _outside(shape: Shape) -> Iterator[TensorOf]:
    yield "token_embd.weight", "F16", (shape.hidden, shape.vocabulary)
    yield "output_norm.weight", "F32", (shape.hidden,)
    yield "output.weight", "Q6_K", (shape.hidden, shape.vocabulary)


def _metadata(shape: Shape) -> dict[str, Value]:
    cached = shape.kv_lora + shape.rope
    said: dict[str, Value] = {
        "block_count": shape.layers,
        "context_length": shape.context,
        "embedding_length": shape.hidden,
        "feed_forward_length": shape.dense_ff,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": 1 if shape.newer else shape.heads,
        "attention.key_length": cached if shape.newer else shape.nope + shape.rope,
        "attention.value_length": shape.kv_lora if shape.newer else shape.value,
        "attention.kv_lora_rank": shape.kv_lora,
        "attention.q_lora_rank": shape.q_lora,
        "rope.dimension_count": shape.rope,
        "leading_dense_block_count": shape.dense_layers,
        "expert_count": shape.experts,
        "expert_used_count": shape.experts_used,
        "expert_shared_count": 1,
        "expert_feed_forward_length": shape.expert_ff,
        "expert_gating_func": 2,
        "vocab_size": shape.vocabulary,
    }
    if shape.newer:
        said |= {
            "attention.key_length_mla": shape.nope + shape.rope,
            "attention.value_length_mla": shape.value,
        }
    found: dict[str, Value] = {"general.architecture": "deepseek2"}
    return found | {f"deepseek2.{name}": number for name, number in said.items()}


def _for_llamacpp(shape: Shape) -> dict[str, Value]:
    """What it does not do without: kt-legacy has it from elsewhere. The words mean nothing."""
    bytes_of_text = [f"<0x{byte:02X}>" for byte in range(256)]
    words = ["<unk>", "<s>", "</s>", *bytes_of_text]
    return {
        "deepseek2.attention.layer_norm_rms_epsilon": 1e-6,
        "deepseek2.expert_weights_scale": 2.5,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*words, *(f"w{n}" for n in range(len(words), shape.vocabulary))],
    }


def _write_config(shape: Shape, tinyseek: Path, folder: Path) -> None:
    """TinySeek's, with other numbers; its tokenizer, with tokens that no text ever becomes."""
    config = json.loads((tinyseek / "config.json").read_text(encoding="utf-8"))
    config |= {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.dense_ff,
        "moe_intermediate_size": shape.expert_ff,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "q_lora_rank": shape.q_lora,
        "kv_lora_rank": shape.kv_lora,
        "qk_nope_head_dim": shape.nope,
        "qk_rope_head_dim": shape.rope,
        "v_head_dim": shape.value,
        "n_routed_experts": shape.experts,
        "num_experts_per_tok": shape.experts_used,
        "first_k_dense_replace": shape.dense_layers,
        "n_group": shape.groups,
        "topk_group": shape.groups_used,
        "max_position_embeddings": shape.context,
        "rope_scaling": {
            "type": "yarn",
            "factor": 40,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in ("generation_config.json", "tokenizer_config.json"):
        shutil.copyfile(tinyseek / name, folder / name)
    tokenizer = json.loads((tinyseek / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    for token in range(len(vocabulary), shape.vocabulary):
        vocabulary[f"dummy{token}"] = token
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def main(path: Path, layers: int, form: str) -> None:
    """Hollow: all its weights are zeros that take no room on the disk."""
    head, size = header_and_size(Shape(layers=layers, newer=form == "newer"))
    path.write_bytes(head)
    with path.open("r+b") as file:
        file.truncate(size)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])

"""config.json and the tokenizer's files, made from the header of the proven weights themselves.

A GGUF file holds all of it, under names of its own. So nothing beside the weights has to be fetched,
locked and proven, and tokens can't be those of another model. Tensors are read by somebody else.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kt_legacy_engine.refusals import Refused
from wire.gguf import Header, NotGguf, read_header

_ARCHITECTURE = "deepseek2"  # llama.cpp's name for V2, V3 and R1
_GATES_BY_SIGMOID = 2  # llama.cpp: LLAMA_EXPERT_GATING_FUNC_TYPE_SIGMOID. V2 has softmax, 1.
# Types of tokens, as llama.cpp numbers them.
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
# DeepSeek-V3's own. Headers of the first months leave them out, and no other model had so many experts.
_V3_EXPERTS, _V3_GROUPS, _V3_GROUPS_USED = 256, 8, 4
# What DeepSeek's own generation_config.json says of R1, R1-0528 and V3.1.
_TEMPERATURE, _TOP_P = 0.6, 0.95
# llama.cpp keeps a tenth of it.
_YARN_LOG_PER_MSCALE = 0.1
_DIGITS = r"\p{N}{1,3}"
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_REST = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# How text is cut before tokens are looked up, by the name that the header gives to it.
_CUTS: Mapping[str, tuple[str, ...]] = {"deepseek-v3": (_DIGITS, _CJK, _REST)}


def made_from(shard: Path, folder: Path) -> Path:
    """`folder`, with the four files in it. `shard`: the first of the weights."""
    try:
        with shard.open("rb") as file:
            header = read_header(file, whole_tokenizer=True)
    except (OSError, NotGguf) as error:
        raise _unusable(shard, str(error)) from error
    missing: list[str] = []
    said = _Said(header, missing)
    files = {
        "config.json": config(said),
        "tokenizer.json": tokenizer(said),
        "tokenizer_config.json": tokenizer_config(said),
        "generation_config.json": generation_config(said),
    }
    if missing:
        raise _unusable(shard, *missing)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return folder


class _Said:
    """A header's values under their short names. What is not there is noted in `missing`."""

    def __init__(self, header: Header, missing: list[str]) -> None:
        self.header = header
        self.missing = missing
        if header.architecture != _ARCHITECTURE:
            missing.append(f"the architecture is {header.architecture}, not {_ARCHITECTURE}")

    def get(self, name: str) -> Any:
        """Of the model, None where it says nothing."""
        return self.header.values.get(f"{_ARCHITECTURE}.{name}")

    def need(self, name: str) -> Any:
        found = self.get(name)
        if found is None:
            self.missing.append(f"it has no {_ARCHITECTURE}.{name}")
            return 0
        return found

    def of_tokenizer(self, name: str) -> Any:
        return self.header.values.get(f"tokenizer.ggml.{name}")

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.header.tokens or ()

    def token(self, name: str) -> str | None:
        """The text of the token that `name` has the number of."""
        number = self.of_tokenizer(f"{name}_token_id")
        return self.tokens[number] if number is not None and number < len(self.tokens) else None


def config(said: _Said) -> dict[str, Any]:
    """As DeepSeek's own config.json names it."""
    groups, groups_used = _groups(said)
    rope = int(said.need("rope.dimension_count"))
    # Files of the newer form give here what is cached: 512 + 64. The heads' own is then beside it.
    key = said.get("attention.key_length_mla") or said.need("attention.key_length")
    value = said.get("attention.value_length_mla") or said.need("attention.value_length")
    if said.need("expert_gating_func") != _GATES_BY_SIGMOID:
        said.missing.append("its experts are not chosen as DeepSeek-V3 chooses them, by a sigmoid")
    heads = said.need("attention.head_count")
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "vocab_size": said.get("vocab_size") or len(said.tokens),
        "hidden_size": said.need("embedding_length"),
        "intermediate_size": said.need("feed_forward_length"),
        "moe_intermediate_size": said.need("expert_feed_forward_length"),
        "num_hidden_layers": _layers(said),
        "num_attention_heads": heads,
        # Of MLA, where every head has its own; the newer form says 1, of what is cached.
        "num_key_value_heads": heads,
        "q_lora_rank": said.get("attention.q_lora_rank"),
        "kv_lora_rank": said.need("attention.kv_lora_rank"),
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": int(key) - rope,
        "v_head_dim": value,
        "n_routed_experts": said.need("expert_count"),
        "num_experts_per_tok": said.need("expert_used_count"),
        "n_shared_experts": said.need("expert_shared_count"),
        "first_k_dense_replace": said.need("leading_dense_block_count"),
        "n_group": groups,
        "topk_group": groups_used,
        "norm_topk_prob": bool(said.need("expert_weights_norm")),
        "routed_scaling_factor": said.need("expert_weights_scale"),
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "moe_layer_freq": 1,
        "num_nextn_predict_layers": 0,
        "max_position_embeddings": said.need("context_length"),
        "rms_norm_eps": said.need("attention.layer_norm_rms_epsilon"),
        "rope_theta": said.need("rope.freq_base"),
        "rope_scaling": _rope_scaling(said),
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "initializer_range": 0.02,
        "pretraining_tp": 1,
        "ep_size": 1,
        "seq_aux": True,
        "aux_loss_alpha": 0.001,
        "use_cache": True,
        "bos_token_id": said.of_tokenizer("bos_token_id"),
        "eos_token_id": said.of_tokenizer("eos_token_id"),
        "torch_dtype": "bfloat16",
    }


def tokenizer(said: _Said) -> dict[str, Any]:
    """As `tokenizers` writes it: byte-level BPE."""
    kind, cut = said.of_tokenizer("model"), said.of_tokenizer("pre")
    if kind != "gpt2":
        said.missing.append(f"its tokenizer is {kind}, not gpt2, which is byte-level BPE")
    if cut not in _CUTS:
        said.missing.append(f"text is cut as {cut} does; known here: {', '.join(_CUTS)}")
    if not said.tokens or len(said.header.token_types) != len(said.tokens):
        said.missing.append("it has no whole list of tokens and their types")
    typed = list(zip(said.tokens, said.header.token_types, strict=False))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": _is_hidden(text, type_),
            }
            for number, (text, type_) in enumerate(typed)
            if type_ in {_CONTROL, _USER_DEFINED}
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                *(
                    {
                        "type": "Split",
                        "pattern": {"Regex": pattern},
                        "behavior": "Isolated",
                        "invert": False,
                    }
                    for pattern in _CUTS.get(str(cut), ())
                ),
                {
                    "type": "ByteLevel",
                    "add_prefix_space": False,
                    "trim_offsets": True,
                    "use_regex": False,
                },
            ],
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            # What fills the table up to the size of the embedding is no text.
            "vocab": {
                text: number for number, (text, type_) in enumerate(typed) if type_ != _UNUSED
            },
            "merges": list(said.header.merges),
        },
    }


def tokenizer_config(said: _Said) -> dict[str, Any]:
    template = said.header.chat_template
    if template is None:
        said.missing.append("it has no tokenizer.chat_template")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        # DeepSeek's texts all begin so; the first headers leave it out.
        "add_bos_token": bool(said.header.values.get("tokenizer.ggml.add_bos_token", True)),
        "add_eos_token": False,
        "bos_token": said.token("bos"),
        "eos_token": said.token("eos"),
        "chat_template": template,
    }


def generation_config(said: _Said) -> dict[str, Any]:
    values = said.header.values
    return {
        "bos_token_id": said.of_tokenizer("bos_token_id"),
        "eos_token_id": said.of_tokenizer("eos_token_id"),
        "do_sample": True,
        "temperature": values.get("general.sampling.temp", _TEMPERATURE),
        "top_p": values.get("general.sampling.top_p", _TOP_P),
    }


def _layers(said: _Said) -> int:
    """Without those that only predict ahead, which nothing here computes."""
    return int(said.need("block_count")) - int(said.get("nextn_predict_layers") or 0)


def _groups(said: _Said) -> tuple[int, int]:
    groups, used = said.get("expert_group_count"), said.get("expert_group_used_count")
    if groups and used:
        return int(groups), int(used)
    if said.get("expert_count") != _V3_EXPERTS:
        said.missing.append("it does not say in which groups its experts are")
    return _V3_GROUPS, _V3_GROUPS_USED


def _rope_scaling(said: _Said) -> dict[str, Any] | None:
    kind = said.get("rope.scaling.type")
    if kind in {None, "none"}:
        return None
    if kind != "yarn":
        said.missing.append(f"its context was stretched by {kind}; known here: yarn")
    mscale = float(said.need("rope.scaling.yarn_log_multiplier")) / _YARN_LOG_PER_MSCALE
    return {
        "type": "yarn",
        "factor": said.need("rope.scaling.factor"),
        "original_max_position_embeddings": said.need("rope.scaling.original_context_length"),
        # Kept in 32 bits.
        "mscale": round(mscale, 4),
        "mscale_all_dim": round(mscale, 4),
        "beta_fast": said.get("rope.scaling.yarn_beta_fast") or 32,
        "beta_slow": said.get("rope.scaling.yarn_beta_slow") or 1,
    }


def _is_hidden(text: str, type_: int) -> bool:
    """Left out of replies. What marks a tool call is kept, for whoever reads the call."""
    return type_ == _CONTROL and "tool" not in text


def _unusable(shard: Path, *why: str) -> Refused:
    return Refused(
        f"the model can't be told from the header of {shard}",
        why=why,
        next_step="choose a profile of another engine, or name a folder with config.json and the "
        "tokenizer: --model_path",
    )

"""What is made from the header of TinySeek's weights, against the files that its makers wrote."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers", reason="tokenizers are installed in the image alone")
pytest.importorskip("jinja2", reason="jinja2 is installed in the image alone")

from kt_legacy_engine.model_folder import made_from
from kt_legacy_engine.refusals import Refused
from kt_legacy_engine.tokenizing import FileTokenizer, default_sampling

TINYSEEK = Path(__file__).resolve().parents[4] / "tests/fixtures/tinyseek"
SHARDS = sorted(TINYSEEK.glob("Q*/*-00001-of-00003.gguf"))
# What the configuration says of the checkpoint that the weights were made of, and nobody reads here.
NOT_IN_A_HEADER = {"auto_map", "rope_interleave"}
BAR = "\N{FULLWIDTH VERTICAL LINE}"
TEXTS = [
    "What is the capital of France?",
    "  two  spaces, a tab\tand\n\n\nlines \r\n ",
    "北京是中国的首都。東京は日本の首都です。한국어도",
    "1234567890 3.14159 1,000,000 ²",
    "🐼👩‍👩‍👧‍👦🇫🇷 é e\u0301 ß ﬁ",
    "def f(x: int) -> int:\n    return x ** 2  # 平方\n\nprint(f(3) != 9 and 'no')",
    '{"a": [1, 2, {"b": null}], "c": "\\u00e9"}',
    "<think>hm</think>",
    f"<{BAR}User{BAR}>hi<{BAR}Assistant{BAR}>",
    "don't we'll I'M _snake_case CamelCase http://x.y/z?a=b&c=d",
    "".join(map(chr, range(1, 0x250))),
    "",
]


@pytest.fixture(scope="module", params=SHARDS, ids=lambda path: path.parent.name)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_from(request.param, tmp_path_factory.mktemp("made") / "model")


def read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def test_the_configuration_is_that_of_the_makers(folder: Path) -> None:
    made, theirs = read(folder / "config.json"), read(TINYSEEK / "hf/config.json")
    for name in theirs.keys() - NOT_IN_A_HEADER:
        wanted = theirs[name]
        # The header keeps them in 32 bits.
        close = pytest.approx(wanted, rel=1e-6) if isinstance(wanted, float) else wanted
        assert made[name] == close, name


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_every_text_becomes_the_same_tokens_and_the_same_text_again(
    folder: Path, text: str
) -> None:
    made, theirs = FileTokenizer(folder, ""), FileTokenizer(TINYSEEK / "hf", "")
    tokens = theirs.encode(text)
    assert made.encode(text) == tokens
    assert made.decode(tokens) == theirs.decode(tokens)


def test_every_token_stands_for_the_same_bytes(folder: Path) -> None:
    made, theirs = FileTokenizer(folder, ""), FileTokenizer(TINYSEEK / "hf", "")
    assert made.vocabulary == theirs.vocabulary
    for token in range(theirs.vocabulary):
        assert made.raw(token) == theirs.raw(token)
        assert made.decode([token]) == theirs.decode([token])


def test_chats_ends_and_sampling_are_those_of_the_makers(folder: Path) -> None:
    made, theirs = FileTokenizer(folder, ""), FileTokenizer(TINYSEEK / "hf", "")
    chat = [{"role": "system", "content": "短く"}, {"role": "user", "content": "Hello"}]
    assert made.encode_chat(chat) == theirs.encode_chat(chat)
    assert made.end_tokens == theirs.end_tokens
    assert default_sampling(folder) == default_sampling(TINYSEEK / "hf")


# --- headers of other files ---

R1: dict[str, Any] = {
    "general.architecture": "deepseek2",
    "deepseek2.block_count": 61,
    "deepseek2.context_length": 163840,
    "deepseek2.embedding_length": 7168,
    "deepseek2.feed_forward_length": 18432,
    "deepseek2.attention.head_count": 128,
    "deepseek2.attention.layer_norm_rms_epsilon": 1e-6,
    "deepseek2.attention.q_lora_rank": 1536,
    "deepseek2.attention.kv_lora_rank": 512,
    "deepseek2.rope.freq_base": 10000.0,
    "deepseek2.rope.dimension_count": 64,
    "deepseek2.rope.scaling.type": "yarn",
    "deepseek2.rope.scaling.factor": 40.0,
    "deepseek2.rope.scaling.original_context_length": 4096,
    "deepseek2.rope.scaling.yarn_log_multiplier": 0.1,
    "deepseek2.leading_dense_block_count": 3,
    "deepseek2.vocab_size": 129280,
    "deepseek2.expert_feed_forward_length": 2048,
    "deepseek2.expert_count": 256,
    "deepseek2.expert_used_count": 8,
    "deepseek2.expert_shared_count": 1,
    "deepseek2.expert_weights_scale": 2.5,
    "deepseek2.expert_weights_norm": True,
    "deepseek2.expert_gating_func": 2,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "deepseek-v3",
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.chat_template": "{{ bos_token }}",
    "tokenizer.ggml.tokens": ["<begin>", "<end>", "a", "b", "ab", "<tool>", "[PAD6]"],
    "tokenizer.ggml.token_type": [3, 3, 1, 1, 1, 3, 5],
    "tokenizer.ggml.merges": ["a b"],
}
OLDER = {"deepseek2.attention.key_length": 192, "deepseek2.attention.value_length": 128}
NEWER = {
    "deepseek2.attention.head_count_kv": 1,
    "deepseek2.attention.key_length": 576,
    "deepseek2.attention.value_length": 512,
    "deepseek2.attention.key_length_mla": 192,
    "deepseek2.attention.value_length_mla": 128,
    "deepseek2.expert_group_count": 8,
    "deepseek2.expert_group_used_count": 4,
}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value_bytes(value: Any) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + text(value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        case _:
            return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)


def a_shard(folder: Path, values: dict[str, Any]) -> Path:
    said = b"".join(text(name) + value_bytes(value) for name, value in values.items())
    path = folder / "a-00001-of-00009.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + said)
    return path


@pytest.mark.parametrize("form", [OLDER, NEWER], ids=["older", "newer"])
def test_both_forms_of_r1_have_deepseeks_own_configuration(
    tmp_path: Path, form: dict[str, Any]
) -> None:
    made = read(made_from(a_shard(tmp_path, R1 | form), tmp_path / "model") / "config.json")
    # Of deepseek-ai/DeepSeek-R1, config.json.
    assert {name: made[name] for name in ("n_group", "topk_group", "num_key_value_heads")} == {
        "n_group": 8,
        "topk_group": 4,
        "num_key_value_heads": 128,
    }
    lengths = [made[n] for n in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")]
    assert lengths == [128, 64, 128]
    assert made["num_hidden_layers"] == 61
    assert made["rope_scaling"] == {
        "type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "beta_fast": 32,
        "beta_slow": 1,
    }


def test_what_only_fills_the_table_is_no_token_and_marks_of_tools_are_text(tmp_path: Path) -> None:
    tokenizer = FileTokenizer(made_from(a_shard(tmp_path, R1 | OLDER), tmp_path / "model"), "")
    assert tokenizer.vocabulary == 6
    assert tokenizer.encode("ab") == [0, 4]
    assert tokenizer.decode([0, 4, 5, 1]) == "ab<tool>"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"general.architecture": "qwen3moe"}, "the architecture is qwen3moe, not deepseek2"),
        ({"deepseek2.expert_gating_func": 1}, "by a sigmoid"),
        ({"deepseek2.expert_count": 64}, "in which groups its experts are"),
        ({"deepseek2.rope.scaling.type": "linear"}, "stretched by linear"),
        ({"tokenizer.ggml.pre": "qwen2"}, "cut as qwen2 does; known here: deepseek-v3"),
        ({"tokenizer.ggml.model": "llama"}, "its tokenizer is llama"),
        ({"tokenizer.ggml.token_type": [1]}, "no whole list of tokens"),
    ],
)
def test_a_header_that_does_not_tell_is_refused_with_the_reason(
    tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    with pytest.raises(Refused) as refused:
        made_from(a_shard(tmp_path, R1 | OLDER | changed), tmp_path / "model")
    assert any(why in reason for reason in refused.value.why)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "name", ["deepseek2.embedding_length", "tokenizer.chat_template", "tokenizer.ggml.tokens"]
)
def test_what_a_header_lacks_is_named(tmp_path: Path, name: str) -> None:
    values = {key: value for key, value in (R1 | OLDER).items() if key != name}
    with pytest.raises(Refused):
        made_from(a_shard(tmp_path, values), tmp_path / "model")

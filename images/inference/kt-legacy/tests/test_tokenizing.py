"""The real tokenizer and chat template, on TinySeek's. What transformers makes of it is recorded."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("tokenizers", reason="tokenizers are installed in the image alone")
pytest.importorskip("jinja2", reason="jinja2 is installed in the image alone")

from kt_legacy_engine.tokenizing import (
    FileTokenizer,
    UnusableModelFolder,
    default_sampling,
)

HF = Path(__file__).resolve().parents[4] / "tests/fixtures/tinyseek/hf"
CONVERSATION = [
    {"role": "system", "content": "Answer briefly."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hello! How can I help you today?"},
    {"role": "user", "content": "What is the capital of France?"},
]
# apply_chat_template of transformers 4.43.2, with the prompt of a reply.
RECORDED = [
    0,
    1360,
    2570,
    7327,
    347,
    21,
    3,
    1639,
    4,
    1639,
    8,
    1373,
    453,
    357,
    1115,
    490,
    1824,
    38,
    1,
    3,
    1185,
    303,
    271,
    948,
    301,
    1833,
    38,
    4,
]


@pytest.fixture
def tokenizer() -> FileTokenizer:
    return FileTokenizer(HF, "")


def test_a_conversation_becomes_the_tokens_that_transformers_makes_of_it(
    tokenizer: FileTokenizer,
) -> None:
    assert tokenizer.encode_chat(CONVERSATION) == RECORDED


def test_a_text_begins_with_the_token_that_begins_every_text(tokenizer: FileTokenizer) -> None:
    assert tokenizer.encode("ready")[0] == 0
    assert tokenizer.encode(
        "<\N{FULLWIDTH VERTICAL LINE}begin▁of▁sentence\N{FULLWIDTH VERTICAL LINE}>ready"
    ) == tokenizer.encode("ready")


def test_a_default_system_message_is_put_before_a_chat_without_one() -> None:
    with_default = FileTokenizer(HF, "Answer briefly.")
    assert with_default.encode_chat(CONVERSATION[1:]) == RECORDED
    assert with_default.encode_chat(CONVERSATION) == RECORDED


def test_bytes_of_tokens_make_up_the_text(tokenizer: FileTokenizer) -> None:
    text = "北京 é 🐼 a\n"
    assert b"".join(map(tokenizer.raw, tokenizer.encode(text)[1:])) == text.encode()


def test_special_tokens_are_no_text(tokenizer: FileTokenizer) -> None:
    assert tokenizer.decode([0, *tokenizer.encode("ready")[1:], 1]) == "ready"
    assert tokenizer.end_tokens == {1}


def test_sampling_is_by_default_what_the_makers_say() -> None:
    assert default_sampling(HF) == (0.6, 0.95)


@pytest.mark.parametrize(
    ("said", "sampling"),
    [
        ("{}", (1.0, 1.0)),
        ('{"temperature": 0.6, "top_p": 0.9}', (0.6, 0.9)),
        ('{"temperature": null, "top_p": null}', (1.0, 1.0)),
        ('{"do_sample": null, "temperature": 0.6}', (0.6, 1.0)),
        # Always the likeliest: what else they say is not used.
        ('{"do_sample": false}', (0.0, 1.0)),
        ('{"do_sample": false, "temperature": 0.6, "top_p": 0.9}', (0.0, 1.0)),
    ],
)
def test_what_the_makers_say_of_sampling_is_meant(
    tmp_path: Path, said: str, sampling: tuple[float, float]
) -> None:
    (tmp_path / "generation_config.json").write_text(said)
    assert default_sampling(tmp_path) == sampling


def test_an_end_that_is_not_said_is_that_of_the_tokenizer(tmp_path: Path) -> None:
    shutil.copytree(HF, tmp_path / "hf")
    (tmp_path / "hf/generation_config.json").write_text('{"eos_token_id": null}')
    assert FileTokenizer(tmp_path / "hf", "").end_tokens == {1}


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_folder_without_its_files_is_refused_by_name(tmp_path: Path, name: str) -> None:
    shutil.copytree(HF, tmp_path / "hf")
    (tmp_path / "hf" / name).unlink()
    with pytest.raises(UnusableModelFolder, match=name):
        FileTokenizer(tmp_path / "hf", "")


def test_messages_that_the_template_can_not_take_are_a_clients_mistake(
    tmp_path: Path,
) -> None:
    shutil.copytree(HF, tmp_path / "hf")
    config = tmp_path / "hf/tokenizer_config.json"
    text = config.read_text(encoding="utf-8")
    config.write_text(
        text.replace(
            '"chat_template": "', '"chat_template": "{{ raise_exception(\'no system\') }}'
        ),
        encoding="utf-8",
    )
    with pytest.raises(ValueError, match="no system"):
        FileTokenizer(tmp_path / "hf", "").encode_chat(CONVERSATION)

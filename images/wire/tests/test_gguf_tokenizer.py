"""Does tokenizer.json number tokens as the GGUF does?"""

import io
import json

import pytest

from images.wire.tests.gguf_files import SHARDS, TINYSEEK, a_file, header_of
from wire.gguf import Header, read_header
from wire.gguf_checks import tokenizer_agrees

TOKENIZER = (TINYSEEK / "hf" / "tokenizer.json").read_bytes()


def a_tokenizer(vocabulary: object, *added: tuple[int, str]) -> bytes:
    tokens = [{"id": number, "content": content} for number, content in added]
    return json.dumps({"model": {"vocab": vocabulary}, "added_tokens": tokens}).encode()


def with_tokens(*tokens: str) -> Header:
    return read_header(io.BytesIO(a_file({"tokenizer.ggml.tokens": tokens}, ())))


def test_tinyseeks_tokenizer_agrees_with_its_first_shard() -> None:
    assert tokenizer_agrees(header_of(SHARDS[0]), TOKENIZER) == []


def test_two_tokens_that_changed_places_are_named() -> None:
    tokenizer = json.loads(TOKENIZER)
    vocabulary = tokenizer["model"]["vocab"]
    a, b = (
        next(token for token, n in vocabulary.items() if n == number) for number in (5000, 6000)
    )
    vocabulary[a], vocabulary[b] = 6000, 5000
    assert tokenizer_agrees(header_of(SHARDS[0]), json.dumps(tokenizer).encode()) == [
        f"token 5000 is {a!r} in the GGUF and {b!r} in tokenizer.json",
        f"token 6000 is {b!r} in the GGUF and {a!r} in tokenizer.json",
    ]


def test_of_many_differences_the_first_five_are_named() -> None:
    header = with_tokens(*(f"a{number}" for number in range(9)))
    told = tokenizer_agrees(header, a_tokenizer({f"b{number}": number for number in range(9)}))
    assert told[0] == "token 0 is 'a0' in the GGUF and 'b0' in tokenizer.json"
    assert told[5:] == ["and 4 more tokens differ"]


@pytest.mark.parametrize(
    ("tokens", "tokenizer"),
    [
        pytest.param(["a", "b"], a_tokenizer({"a": 0}, (1, "b")), id="an added token"),
        pytest.param(["a", "b"], a_tokenizer([["a", -1.5], ["b", -2]]), id="a unigram model"),
        pytest.param(
            ["a", "b", "[PAD2]", "[PAD3]"], a_tokenizer({"a": 0, "b": 1}), id="numbers filled up"
        ),
        pytest.param(["<a b>"], a_tokenizer({}, (0, "<a▁b>")), id="blanks of an added token"),
    ],
)
def test_what_a_converter_does_is_no_difference(tokens: list[str], tokenizer: bytes) -> None:
    assert tokenizer_agrees(with_tokens(*tokens), tokenizer) == []


@pytest.mark.parametrize(
    ("tokens", "tokenizer", "told"),
    [
        (["a", "c"], a_tokenizer({"a": 0}), "token 1 is 'c' in the GGUF and None in"),
        (["a"], a_tokenizer({"a": 0}, (1, "b")), "token 1 is None in the GGUF and 'b' in"),
        (["a"], b"{}", "tokenizer.json can't be read: KeyError"),
        (["a"], b"<html>", "tokenizer.json can't be read: JSONDecodeError"),
    ],
)
def test_a_token_too_many_or_too_few_and_an_unreadable_file_are_told(
    tokens: list[str], tokenizer: bytes, told: str
) -> None:
    (found,) = tokenizer_agrees(with_tokens(*tokens), tokenizer)
    assert found.startswith(told)


def test_a_shard_without_a_vocabulary_is_told() -> None:
    assert tokenizer_agrees(header_of(SHARDS[1]), TOKENIZER) == [
        "the GGUF has no vocabulary in its header"
    ]

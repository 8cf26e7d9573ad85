"""Headers of TinySeek as the `gguf` package (0.19.0) reads them, and tiny files that contradict themselves.

`recorded/tinyseek-q4_k_m.json` is the output of that package's GGUFReader on the same shards.
"""

import io
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.gguf import Header, NotGguf, Ranged, read_header
from wire.gguf_checks import problems, tokenizer_agrees

TINYSEEK = Path(__file__).parents[3] / "tests" / "fixtures" / "tinyseek"
SHARDS = sorted((TINYSEEK / "Q4_K_M").glob("*.gguf"))
RECORDED = json.loads((Path(__file__).parent / "recorded" / "tinyseek-q4_k_m.json").read_bytes())
TOKENIZER = (TINYSEEK / "hf" / "tokenizer.json").read_bytes()


def header_of(path: Path) -> Header:
    with path.open("rb") as file:
        return read_header(file)


def tinyseek(quant: str = "Q4_K_M") -> dict[str, tuple[Header, int]]:
    return {
        f"{quant}/{path.name}": (header_of(path), path.stat().st_size)
        for path in sorted((TINYSEEK / quant).glob("*.gguf"))
    }


# --- files written by hand, as the format's description says ---

UINT32, STRING, ARRAY = 4, 8, 9
F32, Q4_K = 0, 12
Value = int | str | Sequence[str]


def text(content: str) -> bytes:
    return struct.pack("<Q", len(content.encode())) + content.encode()


def value(content: Value) -> bytes:
    if isinstance(content, int):
        return struct.pack("<II", UINT32, content)
    if isinstance(content, str):
        return struct.pack("<I", STRING) + text(content)
    entries = b"".join(map(text, content))
    return struct.pack("<IIQ", ARRAY, STRING, len(content)) + entries


def a_file(
    values: Mapping[str, Value], tensors: Sequence[str], *, count: int | None = None
) -> bytes:
    """Each tensor: 8 F32 numbers, which is also the alignment."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors) if count is None else count, len(values))
    head += b"".join(text(key) + value(content) for key, content in values.items())
    for place, name in enumerate(tensors):
        head += text(name) + struct.pack("<IQIQ", 1, 8, F32, 32 * place)
    return head + bytes(-len(head) % 32) + bytes(32 * len(tensors))


LAYER = ("attn_norm.weight", "attn_q.weight", "ffn_up.weight")
LLAMA: dict[str, Value] = {"general.architecture": "llama", "llama.block_count": 3}
NAMES = (
    "token_embd.weight",
    "output_norm.weight",
    *(f"blk.{layer}.{name}" for layer in range(3) for name in LAYER),
)


def checked(files: Mapping[str, bytes]) -> list[str]:
    read = {
        path: (read_header(io.BytesIO(content)), len(content)) for path, content in files.items()
    }
    return list(problems(read))


def in_shards(*parts: Sequence[str], total: int | None = None) -> dict[str, bytes]:
    count = len(parts)
    whole = sum(map(len, parts)) if total is None else total
    return {
        f"m-{number:05}-of-{count:05}.gguf": a_file(
            {
                **(LLAMA if number == 1 else {}),
                "split.no": number - 1,
                "split.count": count,
                "split.tensors.count": whole,
            },
            part,
        )
        for number, part in enumerate(parts, start=1)
    }


# --- reading ---


@pytest.mark.parametrize("shard", SHARDS, ids=lambda path: path.name[-19:-5])
def test_a_header_is_read_as_the_reference_reader_reads_it(shard: Path) -> None:
    header = header_of(shard)
    recorded: dict[str, Any] = RECORDED[shard.name]
    assert header.data_offset == recorded["data_offset"]
    assert header.alignment == recorded["alignment"]
    assert header.values == recorded["values"]
    assert (header.tokens and len(header.tokens)) == recorded["tokens"]
    assert [
        [tensor.name, tensor.type, list(tensor.shape), tensor.offset, tensor.size_bytes]
        for tensor in header.tensors
    ] == recorded["tensors"]


def test_over_ranges_it_asks_for_the_header_and_little_more() -> None:
    content = SHARDS[0].read_bytes()
    asked: list[tuple[int, int]] = []

    def fetch(start: int, end: int) -> bytes:
        asked.append((start, end))
        return content[start:end]

    header = read_header(Ranged(fetch, len(content), step_bytes=100_000))
    assert header == header_of(SHARDS[0])
    # It ends at 273,760: see the recorded data_offset.
    assert asked == [(0, 100_000), (100_000, 200_000), (200_000, 300_000)]


def test_a_type_that_is_newer_than_the_table_has_no_size_and_is_no_problem() -> None:
    content = a_file(LLAMA, NAMES).replace(
        struct.pack("<QIQ", 8, F32, 0), struct.pack("<QIQ", 8, 999, 0)
    )
    (tensor, *_) = read_header(io.BytesIO(content)).tensors
    assert (tensor.type, tensor.size_bytes) == ("type 999", None)
    assert checked({"m.gguf": content}) == []


HUGE = struct.pack("<Q", 1 << 60)
START = b"GGUF" + struct.pack("<I", 3)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it ends after 0 bytes"),
        (b"<!DOCTYPE html>", "it starts with b'<!DO'"),
        (b"GGUF" + struct.pack(">I", 3), "big-endian"),
        (START + HUGE + HUGE, "announces 1152921504606846976 tensors"),
        (START + bytes(8) + HUGE, "announces 1152921504606846976 values"),
        (START + struct.pack("<QQ", 0, 1) + HUGE, "bytes of text"),
        (START + struct.pack("<QQ", 0, 1) + text("k") + struct.pack("<I", 77), "unknown type 77"),
        (START + struct.pack("<QQ", 0, 1) + text("k") + struct.pack("<II", 9, 9), "ends after"),
        (
            START + struct.pack("<QQ", 0, 1) + text("k") + struct.pack("<II", 9, 4) + HUGE,
            "would exceed",
        ),
        (
            START + struct.pack("<QQ", 0, 1) + text("k") + struct.pack("<II", 9, 8) + HUGE,
            "k has 1152921504606846976 entries",
        ),
        (START + struct.pack("<QQ", 1, 0) + text("t") + struct.pack("<I", 9), "9 dimensions"),
        (
            START + struct.pack("<QQ", 1, 0) + text("t") + struct.pack("<IQIQ", 1, 8, Q4_K, 0),
            "rows of 8, but Q4_K packs 256",
        ),
        (a_file({"general.alignment": 24}, ()), "general.alignment is 24"),
        (
            START + struct.pack("<QQ", 0, 2) + 2 * (text("k") + value(1)),
            "it has k twice",
        ),
    ],
)
def test_what_no_real_file_has_is_refused_with_the_reason(content: bytes, why: str) -> None:
    with pytest.raises(NotGguf, match=why):
        read_header(io.BytesIO(content))


def test_a_header_that_never_ends_is_given_up_after_64_mib() -> None:
    taken = 0

    class Endless:
        def read(self, size: int, /) -> bytes:
            nonlocal taken
            taken += size
            return bytes(size)

    class Malice(Endless):
        head = io.BytesIO(
            START + struct.pack("<QQ", 0, 1) + text("k") + struct.pack("<IIQ", 9, 8, 2_000_000)
        )

        def read(self, size: int, /) -> bytes:
            # After the head: texts of 2^20 bytes each.
            super().read(size)
            return self.head.read(size) or (b"\0\0\x10\0\0\0\0\0" if size == 8 else bytes(size))

    with pytest.raises(NotGguf, match="would exceed"):
        read_header(Malice())
    assert taken <= 64 << 20


@pytest.mark.parametrize("end", [*range(0, 500, 7), 1000, 5000, 200_000, 273_000])
def test_a_header_that_is_cut_short_says_where_it_ends(end: int) -> None:
    with pytest.raises(NotGguf, match=f"after {end} bytes|it starts with"):
        read_header(io.BytesIO(SHARDS[0].read_bytes()[:end]))


@settings(deadline=None)
@given(st.integers(0, 2000), st.integers(0, 255))
def test_one_wrong_byte_in_a_header_never_ends_in_another_error(place: int, byte: int) -> None:
    spoiled = bytearray(a_file(LLAMA, NAMES))
    spoiled[place % len(spoiled)] = byte
    try:
        header = read_header(io.BytesIO(spoiled))
    except NotGguf:
        return
    assert all(isinstance(problem, str) for problem in problems({"m.gguf": (header, len(spoiled))}))


# --- what contradicts itself ---


@pytest.mark.parametrize("quant", ["Q4_K_M", "Q5_K_M"])
def test_tinyseek_is_whole(quant: str) -> None:
    assert list(problems(tinyseek(quant))) == []


def test_both_quants_of_tinyseek_side_by_side_are_two_whole_models() -> None:
    assert list(problems(tinyseek("Q4_K_M") | tinyseek("Q5_K_M"))) == []


def test_a_llama_in_one_file_or_in_shards_is_whole() -> None:
    assert checked({"m.gguf": a_file(LLAMA, NAMES)}) == []
    assert checked(in_shards(NAMES[:4], NAMES[4:])) == []


def test_a_file_that_is_cut_short_is_named_with_the_tensor() -> None:
    files = tinyseek()
    path = f"Q4_K_M/{SHARDS[1].name}"
    header, size = files[path]
    # Recorded: its last tensor is at 4195520 and has 589824 bytes.
    files[path] = header, size - 1
    assert list(problems(files)) == [
        f"{path}: blk.2.ffn_up_exps.weight ends at byte 4785344, but the file at 4785343"
    ]


def test_a_missing_shard_is_named_and_not_every_tensor_in_it() -> None:
    files = tinyseek()
    del files[f"Q4_K_M/{SHARDS[2].name}"]
    assert list(problems(files)) == ["Q4_K_M/TinySeek-Q4_K_M-00003-of-00003.gguf is missing"]


def test_a_shard_under_another_shards_name_is_named() -> None:
    first, second = in_shards(NAMES[:4], NAMES[4:]).values()
    swapped = {"m-00001-of-00002.gguf": second, "m-00002-of-00002.gguf": first}
    assert checked(swapped) == [
        "m-00001-of-00002.gguf: its header says that it is shard 2 of 2",
        "m-00002-of-00002.gguf: its header says that it is shard 1 of 2",
    ]


def test_a_shard_of_another_number_of_shards_is_named() -> None:
    (whole,) = in_shards(NAMES).values()
    assert checked({"m-00001-of-00002.gguf": whole, **dict([list(in_shards((), ()).items())[1]])})[
        0
    ] == ("m-00001-of-00002.gguf: its header says that it is shard 1 of 1")


def test_a_sum_of_tensors_that_differs_from_the_announced_one_is_told() -> None:
    assert checked(in_shards(NAMES[:4], NAMES[4:], total=12)) == [
        "m-00001-of-00002.gguf: 11 tensors are here, but a header says 12"
    ]


def test_a_tensor_in_two_shards_is_named_with_both() -> None:
    assert checked(in_shards(NAMES[:5], NAMES[4:])) == [
        "m-00002-of-00002.gguf: blk.0.ffn_up.weight is also in m-00001-of-00002.gguf"
    ]


@pytest.mark.parametrize(
    ("without", "problem"),
    [
        ("blk.1.attn_q.weight", "blk.1.attn_q.weight is missing; all other layers"),
        ("token_embd.weight", "token_embd.weight is missing"),
        ("output_norm.weight", "output_norm.weight is missing"),
    ],
)
def test_a_tensor_that_is_missing_is_named(without: str, problem: str) -> None:
    (told,) = checked({"m.gguf": a_file(LLAMA, [name for name in NAMES if name != without])})
    assert told.startswith(f"m.gguf: {problem}")


def test_a_tensor_of_one_expert_layer_that_is_missing_is_named_though_a_dense_one_lacks_it() -> (
    None
):
    files = tinyseek()
    path = f"Q4_K_M/{SHARDS[2].name}"
    header, size = files[path]
    kept = tuple(t for t in header.tensors if t.name != "blk.3.ffn_down_exps.weight")
    files[path] = (
        Header(header.version, header.values, None, kept, header.data_offset, header.alignment),
        size,
    )
    first = f"Q4_K_M/{SHARDS[0].name}"
    assert list(problems(files)) == [
        f"{first}: 65 tensors are here, but a header says 66",
        f"{first}: blk.3.ffn_down_exps.weight is missing; all other layers of its kind have it",
    ]


def test_layers_that_block_count_has_and_the_file_has_not_are_named_and_the_reverse() -> None:
    more = {**LLAMA, "llama.block_count": 5}
    assert checked({"m.gguf": a_file(more, NAMES)}) == [
        "m.gguf: layer 3 of 5 has no tensor at all",
        "m.gguf: layer 4 of 5 has no tensor at all",
    ]
    fewer = {**LLAMA, "llama.block_count": 2}
    assert "m.gguf: there is a layer 2, but block_count is 2" in checked(
        {"m.gguf": a_file(fewer, NAMES)}
    )


def test_a_block_count_that_no_model_has_is_told_without_counting_that_far() -> None:
    assert checked({"m.gguf": a_file({**LLAMA, "llama.block_count": 0xFFFFFFFF}, NAMES)}) == [
        "m.gguf: block_count is 4294967295"
    ]


def test_a_layer_that_predicts_ahead_may_differ_from_the_others() -> None:
    values: dict[str, Value] = {
        **LLAMA,
        "llama.block_count": 4,
        "llama.nextn_predict_layers": 1,
    }
    assert checked({"m.gguf": a_file(values, [*NAMES, "blk.3.nextn.eh_proj.weight"])}) == []


@pytest.mark.parametrize(
    ("architecture", "problem"),
    [({}, "its architecture is not said"), ({"general.architecture": "x"}, "x is not a known one")],
)
def test_an_architecture_that_is_not_said_or_not_known_is_told(
    architecture: dict[str, Value], problem: str
) -> None:
    (told,) = checked({"m.gguf": a_file(architecture, NAMES)})
    assert told.endswith(problem)


def test_shards_of_two_architectures_are_told() -> None:
    files = in_shards(NAMES[:4], NAMES[4:])
    files["m-00002-of-00002.gguf"] = a_file(
        {"general.architecture": "qwen3", "split.no": 1, "split.count": 2}, NAMES[4:]
    )
    assert checked(files) == ["m-00001-of-00002.gguf: its architecture is llama and qwen3"]


# --- the tokenizer ---


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

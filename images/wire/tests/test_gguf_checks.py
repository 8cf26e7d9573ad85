"""What contradicts itself in model files: shards, tensors, layers."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from images.wire.tests.gguf_files import (
    LLAMA,
    NAMES,
    SHARDS,
    Value,
    a_file,
    tinyseek,
)
from wire.gguf import read_header
from wire.gguf_checks import problems


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


def moved(offsets: Sequence[int]) -> list[str]:
    """The problems of a whole llama file whose tensors begin at these bytes of the data instead."""
    content = a_file(LLAMA, NAMES)
    header = read_header(io.BytesIO(content))
    tensors = tuple(
        replace(tensor, offset=header.data_offset + offset)
        for tensor, offset in zip(header.tensors, offsets, strict=True)
    )
    return list(problems({"m.gguf": (replace(header, tensors=tensors), len(content))}))


def test_a_tensor_past_the_end_of_the_file_is_named_with_both_ends() -> None:
    places = [32 * place for place in range(11)]
    content_bytes = len(a_file(LLAMA, NAMES))
    # The last of 11 tensors of 32 bytes, moved 2^60 bytes on.
    end = content_bytes + (1 << 60)
    assert moved([*places[:-1], places[-1] + (1 << 60)]) == [
        f"m.gguf: blk.2.ffn_up.weight ends at byte {end}, but the file at {content_bytes}"
    ]


def test_tensors_that_overlap_are_named_in_whichever_order_they_are_listed() -> None:
    places = [32 * place for place in range(11)]
    (told,) = moved([places[1], *places[1:]])
    assert told.startswith("m.gguf: token_embd.weight and output_norm.weight overlap at byte ")
    swapped = [places[1], places[0], *places[2:]]
    assert moved(swapped) == []


def test_a_tensor_that_is_not_aligned_is_named() -> None:
    places = [32 * place for place in range(11)]
    assert moved([*places[:-1], places[-1] - 16]) == [
        "m.gguf: blk.2.ffn_up.weight is not at a multiple of 32 bytes"
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
        replace(header, tokens=None, tensors=kept),
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

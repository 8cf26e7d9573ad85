"""Headers of TinySeek as the `gguf` package (0.19.0) reads them, by file and by ranges.

`recorded/tinyseek-q4_k_m.json` is the output of that package's GGUFReader on the same shards.
"""

import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from images.wire.tests.gguf_files import (
    F32,
    LLAMA,
    NAMES,
    SHARDS,
    UINT32,
    Value,
    a_file,
    header_of,
)
from wire.gguf import NotGguf, read_header
from wire.gguf_checks import problems
from wire.ranged import Ranged

RECORDED = json.loads((Path(__file__).parent / "recorded" / "tinyseek-q4_k_m.json").read_bytes())


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


def test_over_ranges_it_asks_for_twice_as_much_each_time_and_for_little_more_than_the_header() -> (
    None
):
    content = SHARDS[0].read_bytes()
    asked: list[tuple[int, int]] = []

    def fetch(start: int, end: int) -> bytes:
        asked.append((start, end))
        return content[start:end]

    header = read_header(Ranged(fetch, len(content)))
    assert header == header_of(SHARDS[0])
    # It ends at 273,760 (the recorded data_offset): 64, 128 and 256 KiB.
    assert asked == [(0, 65_536), (65_536, 196_608), (196_608, 458_752)]


def test_the_header_of_a_later_shard_is_one_small_piece() -> None:
    content = SHARDS[1].read_bytes()
    asked: list[tuple[int, int]] = []

    def fetch(start: int, end: int) -> bytes:
        asked.append((start, end))
        return content[start:end]

    assert read_header(Ranged(fetch, len(content))) == header_of(SHARDS[1])
    assert asked == [(0, 65_536)]


def test_steps_stop_growing_at_2_mib_and_at_the_end_of_the_file() -> None:
    asked: list[tuple[int, int]] = []

    def fetch(start: int, end: int) -> bytes:
        asked.append((start, end))
        return bytes(end - start)

    reader = Ranged(fetch, 7 << 20)
    assert len(reader.read(7 << 20)) == 7 << 20
    assert asked == [(0, 7 << 20)]  # what is asked for at once is fetched at once
    asked.clear()
    reader = Ranged(fetch, 7 << 20)
    while reader.read(1000):
        pass
    kib = [(end - start) >> 10 for start, end in asked]
    assert kib == [64, 128, 256, 512, 1024, 2048, 2048, 7 * 1024 - 6080]


def test_a_source_that_gives_nothing_more_is_a_cut_file_and_no_endless_loop() -> None:
    with pytest.raises(NotGguf, match="ends after 4 bytes"):
        read_header(Ranged(lambda start, _: b"GGUF"[start:], 1000))


def test_numbers_of_each_layer_are_kept_and_longer_lists_are_stepped_over() -> None:
    values: dict[str, Value] = {
        "a.head_count_kv": [1, 0, -2],
        "a.scores": [7] * 1001,
        "a.names": ["x", "y"],
    }
    header = read_header(io.BytesIO(a_file(values, ())))
    assert header.lists == {"a.head_count_kv": (1, 0, -2)}
    assert header.values == {}


def test_a_type_that_is_newer_than_the_table_has_no_size_and_is_no_problem() -> None:
    content = a_file(LLAMA, NAMES).replace(
        struct.pack("<QIQ", 8, F32, 0), struct.pack("<QIQ", 8, 999, 0)
    )
    header = read_header(io.BytesIO(content))
    assert (header.tensors[0].type, header.tensors[0].size_bytes) == ("type 999", None)
    assert list(problems({"m.gguf": (header, len(content))})) == []


def test_a_truth_value_is_no_number() -> None:
    truth = struct.pack("<IB", 7, 1)
    content = a_file({"a.block_count": 1}, ()).replace(struct.pack("<II", UINT32, 1), truth)
    header = read_header(io.BytesIO(content + bytes(32)))
    assert header.values["a.block_count"] is True
    assert header.count("a.block_count") is None

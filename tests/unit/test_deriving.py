"""The table of R1's tensors, derived, against the sizes that its files are published with."""

from collections import Counter
from collections.abc import Iterator

import pytest

from orchestrator.core.deriving import derived, gets_more_bits
from orchestrator.core.inventory import Inventory, Weight, WeightClass
from orchestrator.core.profile import Model
from published import R1_Q4_K_M

TOTAL_BYTES = 404_430_187_616
# Of DeepSeek's tokenizer.json, as a GGUF holds it: 129,280 tokens and 127,741 merges of 2,315,765 and
# 2,399,021 bytes (each with a length of 8 bytes), and for every token a type of 4 bytes.
TOKENIZER_BYTES = 2_315_765 + 2_399_021 + 4 * 129_280
# How llama-gguf-split cuts: tensors in order, while a shard has no more than 50 GB of data.
SHARD_DATA_BYTES = 50_000_000_000
ALIGNMENT = 32


def a_model(
    quantisation: str = "Q4_K_M",
    total_bytes: int = TOTAL_BYTES,
    *,
    architecture: str = "deepseek2",
    parameters: int = 671_000_000_000,
) -> Model:
    return Model(
        family="DeepSeek-R1",
        architecture=architecture,
        quantisation=quantisation,
        parameters=parameters,
        total_bytes=total_bytes,
        files=9,
        source="the hub's listing",
    )


def r1() -> Inventory:
    inventory = derived(a_model())
    assert inventory is not None
    return inventory


def padded(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def shards(inventory: Inventory) -> Iterator[list[Weight]]:
    shard: list[Weight] = []
    filled = 0
    for weight in inventory.weights:
        if filled + padded(weight.size_bytes) > SHARD_DATA_BYTES:
            yield shard
            shard, filled = [], 0
        shard.append(weight)
        filled += padded(weight.size_bytes)
    yield shard


def split_header_bytes(shard: list[Weight]) -> int:
    """By the format's description, where `split.*` are all the values there are.

    Magic, version and two counts: 24. Keys have a length of 8 bytes and a type of 4: `split.no` and
    `split.count` are of 2 bytes, `split.tensors.count` of 4. Each tensor: its name with a length,
    dimensions (4), each of 8, type (4) and offset (8).
    """
    values = (8 + 8 + 4 + 2) + (8 + 11 + 4 + 2) + (8 + 19 + 4 + 4)
    tensors = sum(8 + len(weight.name) + 4 + 8 * len(weight.shape) + 12 for weight in shard)
    return 24 + values + tensors


def test_r1_has_as_many_tensors_of_each_type_as_llama_cpp_reports_of_it() -> None:
    """1025 tensors: the log in ollama/ollama issue 8930.

    361 f32, 606 q4_K (605 of them repacked) and 58 q6_K: the log in ikawrakow/ik_llama.cpp pull 287,
    which also says 129,280 tokens, 127,741 merges and 61 layers.
    """
    types = Counter(weight.type for weight in r1().weights)
    assert types == {"F32": 361, "Q4_K": 606, "Q6_K": 58}
    assert types.total() == 1025


def test_every_shard_but_the_first_comes_out_to_the_byte() -> None:
    """The first also has the tokenizer and the model's values: see below."""
    _, *later = shards(r1())
    sizes = tuple(
        padded(split_header_bytes(shard)) + sum(weight.size_bytes for weight in shard)
        for shard in later
    )
    assert sizes == R1_Q4_K_M[1:]


def test_of_the_first_shard_all_but_5_kb_are_tensors_and_the_tokenizer() -> None:
    """The rest: keys and values of the model (some 40, says its log), chat template, padding."""
    first, *_ = shards(r1())
    data_bytes = sum(weight.size_bytes for weight in first)
    rest = R1_Q4_K_M[0] - data_bytes - split_header_bytes(first) - TOKENIZER_BYTES
    assert 2_000 < rest < 5_000


def test_the_derived_total_is_the_published_one_less_its_headers() -> None:
    inventory = r1()
    # 0.0013 %, all of it headers; 0.05 % would hide a wrong type of one kind of tensor in 61 layers:
    # attn_kv_b as Q6_K in the layers that get more bits would be 129.8 MB, or 0.032 %.
    assert TOTAL_BYTES - inventory.total_bytes == 5_303_392
    assert (TOTAL_BYTES - inventory.total_bytes) / TOTAL_BYTES < 0.000_02
    assert inventory.origin == "derived"
    assert inventory.file_bytes == {}


def test_the_bytes_of_each_class_are_those_of_the_public_config() -> None:
    inventory = r1()
    q4, q6 = 144 / 256, 210 / 256
    expert = 7168 * 2048
    # 61 // 8 = 7: layers 0 to 6 and 53 to 60, and 9, 12, ... 51: 7 + 8 + 15. Layers 0 to 2 are dense.
    more, fewer = 27, 31
    down = more * q6 + fewer * q4
    assert inventory.bytes_of(WeightClass.ROUTED_EXPERTS) == 256 * expert * (2 * 58 * q4 + down)
    assert inventory.bytes_of(WeightClass.SHARED_EXPERTS) == expert * (2 * 58 * q4 + down)
    assert inventory.bytes_of(WeightClass.DENSE) == 3 * 7168 * 18_432 * (2 * q4 + q6)
    assert inventory.bytes_of(WeightClass.EMBEDDING) == 7168 * 129_280 * q4
    assert inventory.bytes_of(WeightClass.OUTPUT) == 7168 * 129_280 * q6
    attention = 7168 * 1536 + 1536 * 24_576 + 7168 * 576 + 512 * 32_768 + 16_384 * 7168
    assert inventory.bytes_of(WeightClass.ATTENTION) == 61 * attention * q4


def test_the_parameters_are_the_published_671_billion() -> None:
    values = 0
    for weight in r1().weights:
        product = 1
        for size in weight.shape:
            product *= size
        values += product
    assert round(values / 1e9) == 671


def test_the_layers_with_more_bits_are_the_ends_and_every_third_between() -> None:
    # 32 layers: eighths of 4.
    found = [layer for layer in range(32) if gets_more_bits(layer, 32)]
    assert found == [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]


@pytest.mark.parametrize(
    ("quantisation", "published"),
    [
        # bartowski/deepseek-ai_DeepSeek-V3-0324-GGUF, made with llama.cpp b4944, in GB.
        ("Q4_K_M", 404_430_000_000),
        ("Q5_K_M", 475_400_000_000),
        ("Q6_K", 550_800_000_000),
        ("Q8_0", 713_290_000_000),
    ],
)
def test_the_same_rule_gives_the_published_sizes_of_v3_0324(
    quantisation: str, published: int
) -> None:
    inventory = derived(a_model(quantisation, published))
    assert inventory is not None
    # 5.3 MB of headers, and no more than 5 MB that the published figure is rounded by.
    assert 0 < published - inventory.total_bytes < 5_303_392 + 5_000_000


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(a_model("UD-Q2_K_XL", 226_000_000_000), id="a dynamic quant"),
        pytest.param(a_model("Q4_K_M", 405_400_000_000), id="V3.1, made by another rule"),
        pytest.param(a_model("Q4_K_M", 404_420_000_000), id="fewer bytes than the tensors have"),
        pytest.param(a_model(architecture="qwen3moe"), id="another architecture"),
        pytest.param(a_model(parameters=18_900_000), id="TinySeek"),
    ],
)
def test_nothing_is_derived_where_rule_or_size_are_another_models(model: Model) -> None:
    assert derived(model) is None

"""NVIDIA's cards as its tools of many years print them: table, query, list and topology."""

import pytest

from orchestrator.core.probes.capability import capability_of
from orchestrator.core.probes.captures import facts_of
from orchestrator.core.probes.nvidia import parse_table
from orchestrator.core.probes.nvidia_lists import parse_query

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        # developer.nvidia.com/cuda-gpus and /cuda-legacy-gpus
        ("NVIDIA GeForce RTX 4090", (8, 9)),
        ("NVIDIA GeForce RTX 4060 ...", (8, 9)),
        ("NVIDIA GeForce RTX 3090", (8, 6)),
        ("NVIDIA A100-SXM4-80GB", (8, 0)),
        ("NVIDIA A100-SXM...", (8, 0)),
        ("Tesla V100-PCIE...", (7, 0)),
        ("Tesla T4", (7, 5)),
        ("NVIDIA H200", (9, 0)),
        ("NVIDIA H100 80GB HBM3", (9, 0)),
        ("NVIDIA GB10", (12, 1)),
        ("NVIDIA RTX 6000 Ada Generation", (8, 9)),
        ("Quadro RTX 6000", (7, 5)),
        ("NVIDIA RTX A6000", (8, 6)),
        ("NVIDIA RTX 6000 ...", None),  # of two generations
        ("NVIDIA A10...", None),  # A10 or A100
        ("NVIDIA GeForce RTX...", None),
        ("NVIDIA GeForce RTX 3050 A Laptop GPU", None),  # not the chip of the other 3050s
        ("NVIDIA A10G", None),
        ("NVIDIA Graphics Device", None),
        ("", None),
    ],
)
def test_a_cards_name_tells_its_capability_only_where_it_leaves_no_doubt(
    name: str, capability: tuple[int, int] | None
) -> None:
    assert capability_of(name) == capability


def test_a_driver_of_today_names_its_versions_otherwise() -> None:
    line = "| NVIDIA-SMI 610.57.04    KMD Version: 610.57.04    CUDA UMD Version: 13.3     |\n"
    smi = parse_table(line)
    assert (smi.driver_version, smi.driver_cuda, smi.gpus) == ("610.57.04", "13.3", None)


def test_what_a_card_has_free_is_what_the_table_says_is_not_used() -> None:
    table = (
        "|   0  NVIDIA GeForce RTX 4090        On  |   00000000:01:00.0  On |                  Off |\n"
        "|  0%   42C    P8             13W /  450W |    2853MiB /  24564MiB |     43%      Default |\n"
    )
    gpus = parse_table(table).gpus
    assert gpus is not None
    assert gpus[0].memory_free_bytes == 21711 * MIB  # 24564 - 2853
    assert gpus[0].persistence is True


def test_no_devices_is_an_answer_and_no_answer_is_none() -> None:
    assert facts_of({"nvidia-smi.txt": "No devices were found\n"}).gpus == ()
    failed = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    assert facts_of({"nvidia-smi.txt": failed}).gpus is None


QUERY = """name, index, memory.total [MiB], memory.free [MiB], compute_cap, mig.mode.current, persistence_mode, driver_version
NVIDIA A100-SXM4-80GB, 1, 81920 MiB, 81000 MiB, 8.0, Enabled, Enabled, 550.54
NVIDIA GB10, 0, [N/A], [Not Supported], 12.1, [N/A], Disabled, 550.54
"""


def test_the_query_is_read_by_its_header_with_units_or_without() -> None:
    for text in (QUERY, QUERY.replace(" MiB,", ",")):
        smi = parse_query(text)
        assert smi.driver_version == "550.54"
        assert smi.gpus is not None
        spark, ampere = smi.gpus
        assert (spark.index, spark.name, spark.memory_bytes) == (0, "NVIDIA GB10", None)
        assert (spark.memory_free_bytes, spark.compute_capability) == (None, (12, 1))
        assert (spark.mig, spark.persistence) == (False, False)
        assert (ampere.index, ampere.memory_free_bytes) == (1, 81000 * MIB)
        assert (ampere.mig, ampere.persistence) == (True, True)


def test_the_query_beats_the_table_and_the_table_adds_what_it_left_out() -> None:
    table = (
        "|   0  NVIDIA A100-SXM...  On   | 00000000:0E:00.0 Off |                    0 |\n"
        "| N/A   28C    P0    61W / 400W |     10MiB / 81920MiB |      0%      Default |\n"
    )
    query = "name, memory.total [MiB]\nNVIDIA A100-SXM4-80GB, 81251 MiB\n"
    gpus = facts_of({"nvidia-smi.txt": table, "nvidia-smi-query.csv": query}).gpus
    assert gpus is not None
    assert (gpus[0].name, gpus[0].memory_bytes) == ("NVIDIA A100-SXM4-80GB", 81251 * MIB)
    assert gpus[0].memory_used_bytes == 10 * MIB


def test_a_topology_places_cards_that_another_text_lists() -> None:
    listed = "GPU 0: NVIDIA H200 (UUID: GPU-0)\nGPU 1: NVIDIA H200 (UUID: GPU-1)\n"
    topology = (
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
        "GPU0\t X \tSYS\t0-3,8-11\t0\nGPU1\tSYS\t X \t4-7,12-15\t1\n"
    )
    facts = facts_of({"nvidia-smi-L.txt": listed, "topo.txt": topology})
    assert [gpu.numa_node for gpu in facts.gpus or ()] == [0, 1]
    assert facts.node_count == 2
    spaced = topology.replace("\t", "  ")
    again = facts_of({"nvidia-smi-L.txt": listed, "topo.txt": spaced})
    assert [gpu.numa_node for gpu in again.gpus or ()] == [0, 1]


def test_the_cpus_beside_a_card_are_all_only_where_they_are_one_run_from_the_first() -> None:
    text = "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t{}\t0\n"
    assert facts_of({"topo.txt": text.format("0-31")}).cpu.threads == 32
    assert facts_of({"topo.txt": text.format("0-15,32-47")}).cpu.threads is None
    assert facts_of({"topo.txt": text.format("16-31")}).cpu.threads is None


def test_nodes_that_cards_are_beside_need_not_be_all() -> None:
    topology = (
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
        "GPU0\t X \tSYS\t0-3\t0\nGPU1\tSYS\t X \t4-7\t1\n"
    )
    assert facts_of({"topo.txt": topology}).node_count is None

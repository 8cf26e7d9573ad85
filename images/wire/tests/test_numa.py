"""numa_maps as kernels write it: of a llama.cpp engine on hosts of one and of two nodes, and odd ones."""

from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.numa import PageReport, areas, as_planned, below, page_report

RECORDED = Path(__file__).parent / "recorded"
WEIGHTS = PurePosixPath("/weights")
FOLDER = "appliance--TinySeek/80d2e845483a/Q4_K_M"
NAMES = [f"{FOLDER}/TinySeek-Q4_K_M-0000{number}-of-00003.gguf" for number in (1, 2, 3)]


def a_report(text: str) -> PageReport:
    return page_report(text, WEIGHTS, {})


def recorded(name: str) -> PageReport:
    return a_report((RECORDED / name).read_text(encoding="utf-8"))


def test_an_engine_on_one_node_has_all_pages_of_its_shards_there() -> None:
    found = recorded("numa_maps-one-node.txt")
    # grep gguf: N0=1058 of the first shard, 728 and 1 of the second, 541 and 1 of the third
    pages = [1058, 728 + 1, 541 + 1]
    assert [shard.path for shard in found.shards] == NAMES
    assert [shard.node_bytes for shard in found.shards] == [{0: count * 4096} for count in pages]
    assert found.shard_bytes == {0: sum(pages) * 4096}
    assert found.policies == ("interleave:0",)


def test_an_engine_on_two_nodes_is_counted_on_each() -> None:
    found = recorded("numa_maps-two-nodes.txt")
    # grep gguf: 529 and 529 pages of the first shard, 364 and 365, 271 and 271
    assert [shard.node_bytes for shard in found.shards] == [
        {0: 529 * 4096, 1: 529 * 4096},
        {0: 364 * 4096, 1: 365 * 4096},
        {0: 271 * 4096, 1: 271 * 4096},
    ]
    assert found.policies == ("interleave:0-1",)
    assert set(found.own_bytes) == {0, 1}


@pytest.mark.parametrize(
    ("line", "policy", "file", "node_bytes"),
    [
        pytest.param(
            "7f00 bind:0-1 file=/weights/a.gguf mapped=3 N0=1 N7=2 kernelpagesize_kB=4",
            "bind:0-1",
            "/weights/a.gguf",
            {0: 4096, 7: 8192},
            id="nodes by number",
        ),
        pytest.param(
            r"7f00 default file=/weights/a\040b\075\134.gguf mapped=1 N0=1 kernelpagesize_kB=4",
            "default",
            "/weights/a b=\\.gguf",
            {0: 4096},
            id="a file name with signs that the kernel escapes",
        ),
        pytest.param(
            "7f00 default file=/anon_hugepage\\040(deleted) huge anon=3 dirty=3 N1=3 "
            "kernelpagesize_kB=2048",
            "default",
            "/anon_hugepage (deleted)",
            {1: 3 * 2048 * 1024},
            id="huge pages are counted in pages of 2 MiB",
        ),
        pytest.param(
            "7f00 prefer (many):0-1 heap anon=2 dirty=2 N0=2 kernelpagesize_kB=4",
            "prefer (many):0-1",
            None,
            {0: 8192},
            id="a policy of two words",
        ),
        pytest.param(
            "7f00 bind=static:0,2 anon=1 dirty=1 N2=1 kernelpagesize_kB=64",
            "bind=static:0,2",
            None,
            {2: 65536},
            id="a policy with a flag, and the large pages of other machines",
        ),
    ],
)
def test_a_line_says_policy_file_and_bytes_by_node(
    line: str, policy: str, file: str | None, node_bytes: dict[int, int]
) -> None:
    (area,) = areas(line + "\n")
    assert (area.policy, area.file, area.node_bytes) == (policy, file, node_bytes)


@pytest.mark.parametrize(
    "line",
    [
        "\n",
        "7f00\n",
        "7f00 default\n",
        "7f00 default file=/weights/a.gguf\n",
        "7f00 default file=/weights/a.gguf mapped=1 N0=1\n",
        "7f00 default file=/weights/a.gguf mapped=1 N0=x kernelpagesize_kB=4\n",
        "7f00 default file=/weights/a.gguf mapped=1 N0=1 kernelpagesize_kB=\n",
        "7f00 default file=/weights/a.gguf mapped=1 N0=1 kernelpagesize_kB=20",
        pytest.param("7f00 default N0=1 kernelpagesize_kB=4 kernelpagesize_kB=4\n", id="joined"),
    ],
)
def test_a_line_that_is_cut_or_odd_says_nothing(line: str) -> None:
    assert not list(areas(line))


@given(st.text())
def test_no_text_makes_it_fail(text: str) -> None:
    a_report(f"7f00 default {text}\n{text}\n")


def test_a_capture_cut_anywhere_gives_no_more_than_the_whole() -> None:
    text = (RECORDED / "numa_maps-two-nodes.txt").read_text(encoding="utf-8")
    whole = sum(a_report(text).shard_bytes.values())
    for end in range(0, len(text), 97):
        assert sum(a_report(text[:end]).shard_bytes.values()) <= whole


def test_memory_without_a_file_on_disk_is_the_engines_own_and_libraries_are_nobodys() -> None:
    lines = [
        "1 default heap anon=1 dirty=1 N0=1 kernelpagesize_kB=4",
        r"2 default file=/dev/zero\040(deleted) anon=2 dirty=2 N1=2 kernelpagesize_kB=4",
        "3 default file=/usr/lib/libc.so.6 mapped=9 N0=9 kernelpagesize_kB=4",
    ]
    found = a_report("\n".join([*lines, ""]))
    assert found.own_bytes == {0: 4096, 1: 8192}
    assert found.shards == ()


def test_huge_pages_are_told_apart() -> None:
    line = "1 default huge anon=3 dirty=3 N1=3 kernelpagesize_kB=2048\n"
    assert a_report(line).huge_bytes == 3 * 2 * 1024 * 1024


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("/weights/a/b.gguf", "a/b.gguf"),
        ("/weights/b.gguf (deleted)", "b.gguf"),
        ("/weights-old/b.gguf", None),
        ("/weights", None),
        (None, None),
    ],
)
def test_only_files_below_the_weights_folder_are_shards(file: str | None, path: str | None) -> None:
    assert below(file, WEIGHTS) == path


@pytest.mark.parametrize(
    ("node_bytes", "nodes", "slack", "expected"),
    [
        pytest.param({0: 50, 1: 50}, (0, 1), 0, True, id="halves"),
        pytest.param({0: 55, 1: 45}, (0, 1), 0, True, id="a tenth over a half"),
        pytest.param({0: 56, 1: 44}, (0, 1), 0, False, id="more than a tenth over a half"),
        pytest.param({0: 56, 1: 44}, (0, 1), 1, True, id="but not by more than chance"),
        pytest.param({0: 95, 1: 5}, (0,), 0, True, id="one in twenty elsewhere"),
        pytest.param({0: 94, 1: 6}, (0,), 0, False, id="more than one in twenty elsewhere"),
        pytest.param({0: 94, 1: 6}, (0,), 1, True, id="but not by more than chance, elsewhere"),
        pytest.param({1: 100}, (0,), 0, False, id="all on the wrong node"),
        pytest.param({0: 50, 1: 0, 2: 50}, (0, 1), 0, False, id="half on a node not planned"),
        pytest.param({}, (0, 1), 0, True, id="nothing lies anywhere"),
    ],
)
def test_memory_lies_as_planned_within_what_costs_a_tenth_of_the_speed(
    node_bytes: dict[int, int], nodes: tuple[int, ...], slack: int, expected: bool
) -> None:
    assert as_planned(node_bytes, nodes, slack) is expected


def test_a_report_survives_json() -> None:
    found = recorded("numa_maps-two-nodes.txt")
    assert PageReport.model_validate_json(found.model_dump_json()) == found

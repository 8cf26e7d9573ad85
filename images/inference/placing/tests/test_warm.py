"""Bringing weights into the page cache where they are to lie, on this host's own page cache."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from placing import warm as warming
from placing.nodes import nodes_with_memory
from placing.policy import Policy
from placing.sample import WINDOW_BYTES, Sample, _windows, sample
from placing.warm import Need, need, read, warm

MIB = 1 << 20
needs_numa = pytest.mark.skipif(
    not Path("/proc/self/numa_maps").exists(), reason="this kernel has no NUMA"
)


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Three, of which none is a whole number of pages, on disk and in memory."""
    command = ["stat", "--file-system", "--format=%T", str(tmp_path)]
    if subprocess.run(command, capture_output=True, check=True).stdout == b"tmpfs\n":
        pytest.skip("the folder for tests lies in memory: no page of it can be dropped")
    paths = [tmp_path / f"{number}.gguf" for number in range(3)]
    for number, path in enumerate(paths):
        path.write_bytes(os.urandom((3 + number) * MIB + 17))
        with path.open("rb") as file:
            os.fsync(file.fileno())  # a page that is not yet on disk can't be dropped
    return paths


def drop(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


# --- the sample ---


@needs_numa
def test_a_sample_finds_what_is_in_memory_and_reads_nothing_else(shards: list[Path]) -> None:
    assert sample(shards).cached == 1.0
    for path in shards:
        drop(path)
    first, second = sample(shards), sample(shards)
    assert first == second == Sample(0.0, first.windows, {})


@needs_numa
def test_a_sample_says_on_which_nodes_the_pages_lie(shards: list[Path]) -> None:
    found = sample(shards)
    assert set(found.node_bytes) <= set(nodes_with_memory() or ())
    assert sum(found.node_bytes.values()) > 0


@needs_numa
def test_a_sample_of_more_windows_than_files_may_be_open_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "large.gguf"
    path.touch()
    os.truncate(path, 1 << 30)  # one hole: it costs no disk
    assert sample([path], windows=2000).windows == 2000


def test_windows_lie_evenly_over_all_bytes_of_all_files(tmp_path: Path) -> None:
    large, small = tmp_path / "large", tmp_path / "small"
    for path, size in ((large, 3 << 30), (small, 1 << 30)):
        path.touch()
        os.truncate(path, size)
    found = list(_windows([large, small], 1024))
    assert [sum(path == one for path, *_ in found) for one in (large, small)] == [768, 256]
    # In no step with pieces of 2 MiB that lie on two nodes in turn:
    even = sum(offset // (2 * MIB) % 2 == 0 for path, offset, _ in found)
    assert even == pytest.approx(512, abs=20)
    assert all(length == WINDOW_BYTES for *_, length in found)


# --- what to do ---


@pytest.mark.parametrize(
    ("cached", "node_bytes", "nodes", "expected"),
    [
        pytest.param(1.0, {0: 50, 1: 50}, (0, 1), Need.NOTHING, id="as planned"),
        pytest.param(0.5, {0: 25, 1: 25}, (0, 1), Need.READ, id="half of it gone"),
        pytest.param(0.0, {}, (0, 1), Need.READ, id="nothing in memory"),
        pytest.param(1.0, {0: 93, 1: 7}, (0, 1), Need.DROP_AND_READ, id="most on one node"),
        pytest.param(1.0, {0: 100}, (1,), Need.DROP_AND_READ, id="on the wrong node"),
        pytest.param(1.0, {1: 99, 0: 1}, (1,), Need.NOTHING, id="one page in a hundred elsewhere"),
    ],
)
def test_weights_are_read_again_only_where_they_lie_otherwise_than_planned(
    cached: float, node_bytes: Mapping[int, int], nodes: tuple[int, ...], expected: Need
) -> None:
    assert need(Sample(cached, 1024, node_bytes), nodes) is expected


def test_what_a_sample_of_eight_nodes_shows_by_chance_is_no_reason_to_read_again() -> None:
    # Of 1024 windows 128 are expected on each; the standard deviation is sqrt(1024 / 8 x 7 / 8) = 10.6
    nodes = tuple(range(8))
    likely = dict.fromkeys(nodes, 128) | {0: 128 + 21, 1: 128 - 21}
    assert need(Sample(1.0, 1024, likely), nodes) is Need.NOTHING


# --- doing it ---


def two_nodes(monkeypatch: pytest.MonkeyPatch, *samples: Sample) -> None:
    """A host of two nodes on which the samples are found, one after the other."""
    found = iter(samples)
    monkeypatch.setattr(warming, "nodes_with_memory", lambda: (0, 1))
    monkeypatch.setattr(warming, "sample", lambda _: next(found))


ON_NODE_0 = Sample(1.0, 1024, {0: 100})
GONE = Sample(0.0, 1024, {})


@needs_numa
def test_weights_on_the_wrong_node_are_dropped_and_read_again(
    shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    two_nodes(monkeypatch, ON_NODE_0, GONE)
    dropped: list[float] = []
    monkeypatch.setattr(warming, "read", lambda files, _: dropped.append(sample(files).cached))
    told: list[str] = []
    warm(shards, "interleave", (0, 1), told.append)
    assert dropped == [0.0]  # before it was read again, nothing was in memory
    assert told == ["weights: they lie otherwise than planned (interleave, nodes 0,1)"]


def test_a_second_start_reads_nothing(shards: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    two_nodes(monkeypatch, Sample(1.0, 1024, {0: 50, 1: 50}))
    monkeypatch.setattr(warming, "read", lambda *_: pytest.fail("read"))
    told: list[str] = []
    warm(shards, "interleave", (0, 1), told.append)
    assert told == ["weights: they are in memory as planned, on nodes 0,1"]


def test_pages_that_another_program_keeps_are_told(
    shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    two_nodes(monkeypatch, ON_NODE_0, ON_NODE_0)
    told: list[str] = []
    warm(shards, "interleave", (0, 1), told.append)
    assert told[1] == "weights: 100 % stay in memory where they are: another program uses them"


@pytest.mark.parametrize(
    ("policy", "nodes_here"), [("interleave", (0,)), ("interleave", None), ("local", (0, 1))]
)
def test_where_there_is_nothing_to_choose_nothing_is_looked_at(
    shards: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    policy: Policy,
    nodes_here: tuple[int, ...] | None,
) -> None:
    monkeypatch.setattr(warming, "nodes_with_memory", lambda: nodes_here)
    monkeypatch.setattr(warming, "sample", lambda _: pytest.fail("looked"))
    warm(shards, policy, (0,), pytest.fail)


@needs_numa
def test_reading_brings_all_in_and_tells_bytes_rate_and_time_left(
    shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warming, "CHUNK_BYTES", MIB)
    for path in shards:
        drop(path)
    ticks = iter(range(0, 1000, 11))
    told: list[str] = []
    read(shards, told.append, lambda: float(next(ticks)))
    assert sample(shards).cached == 1.0
    # 12 MiB + 51 bytes in three files; each look at the clock is 11 s later, so 11 MiB take 121 s.
    assert told[0] == "weights: 0.0 of 0.0 GB read into memory, 0.00 GB/s, 2 min left"
    assert told[-1].startswith("weights: 0.0 of 0.0 GB read into memory, 0.00 GB/s in ")


def test_the_words_of_a_large_model() -> None:
    # 101.1 GB in 60 s is 1.685 GB/s; the other 303.3 GB take 180 s.
    assert warming._progress(101_100_000_000, 404_400_000_000, 60.0) == (
        "weights: 101.1 of 404.4 GB read into memory, 1.69 GB/s, 3 min left"
    )


@pytest.mark.parametrize(
    ("listing", "nodes"),
    [("0\n", (0,)), ("0-1\n", (0, 1)), ("0,2-3\n", (0, 2, 3)), ("\n", None), ("x\n", None)],
)
def test_the_kernels_list_of_nodes_is_read(
    tmp_path: Path, listing: str, nodes: tuple[int, ...] | None
) -> None:
    path = tmp_path / "has_memory"
    path.write_text(listing)
    assert nodes_with_memory(path) == nodes
    assert nodes_with_memory(tmp_path / "nowhere") is None

"""What the engine's container says of the engine's memory: of a /proc made here, and of this host's."""

import mmap
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from placing.report import report
from wire.numa import PageReport

SOURCES = ":".join(
    str(Path(__file__).parents[3] / folder) for folder in ("inference/placing/src", "wire/src")
)
NICE, BARE = "0000000000800000", "0000000000000000"  # 1 << 23, CAP_SYS_NICE; none


def a_process(
    proc: Path, pid: str, maps: str, numa_maps: str | None, threads: tuple[str, ...] = ("0-3",)
) -> None:
    for number, cpus in enumerate(threads):
        thread = proc / pid / "task" / str(number)
        thread.mkdir(parents=True)
        (thread / "status").write_text(f"Name:\tpython3\nCpus_allowed_list:\t{cpus}\n")
    (proc / pid / "maps").write_text(maps)
    (proc / pid / "status").write_text("Name:\tpython3\nVmRSS:\t   2048 kB\n")
    if numa_maps is not None:
        (proc / pid / "numa_maps").write_text(numa_maps)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "weights" / "owner--name"
    folder.mkdir(parents=True)
    (folder / "a.gguf").write_bytes(b"12345678")
    return tmp_path / "weights"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A container with its first process, which maps nothing of the weights."""
    folder = tmp_path / "proc"
    a_process(folder, "1", "400000-401000 r-xp 0 08:01 7 /usr/bin/python3.11\n", "")
    (folder / "self").mkdir()
    (folder / "self" / "status").write_text(f"CapBnd:\t{NICE}\n")
    (folder / "meminfo").write_text("")
    return folder


def mapping(first: int, last: int, weights: Path) -> str:
    return f"{first:x}-{last:x} r--s 00000000 08:01 12 {weights}/owner--name/a.gguf\n"


def test_the_process_that_maps_the_weights_is_the_engine(proc: Path, weights: Path) -> None:
    pages = f"7f00 bind:1 file={weights}/owner--name/a.gguf mapped=2 N1=2 kernelpagesize_kB=4\n"
    a_process(proc, "9", mapping(0x1000, 0x3000, weights), pages, ("0-3", "1", "1"))
    found = report(weights, proc)
    assert [(shard.path, shard.size_bytes, shard.node_bytes) for shard in found.shards] == [
        ("owner--name/a.gguf", 8, {1: 8192})
    ]
    assert found.rss_bytes == 2048 * 1024
    assert found.cpus == {"0-3": 1, "1": 2}
    assert found.policies == ("bind:1",)
    assert found.has_sys_nice is True


def test_of_several_it_is_the_one_that_maps_most(proc: Path, weights: Path) -> None:
    for pid, last, node in (("7", 0x2000, 0), ("8", 0x9000, 1), ("9", 0x3000, 2)):
        pages = f"7f00 default file={weights}/owner--name/a.gguf N{node}=1 kernelpagesize_kB=4\n"
        a_process(proc, pid, mapping(0x1000, last, weights), pages)
    assert report(weights, proc).shard_bytes == {1: 4096}


def test_before_the_load_no_process_is_the_engine(proc: Path, weights: Path) -> None:
    assert report(weights, proc).trouble == f"no process here maps a file of {weights}"


def test_a_kernel_without_numa_is_told(proc: Path, weights: Path) -> None:
    a_process(proc, "9", mapping(0x1000, 0x3000, weights), None)
    assert report(weights, proc).trouble == f"{proc / '9' / 'numa_maps'} can't be read"


@pytest.mark.parametrize(("bounds", "has"), [(NICE, True), (BARE, False)])
def test_the_capability_counts_in_the_bounds_of_the_container(
    proc: Path, weights: Path, bounds: str, *, has: bool
) -> None:
    (proc / "self" / "status").write_text(f"CapEff:\t{BARE}\nCapBnd:\t{bounds}\n")
    assert report(weights, proc).has_sys_nice is has


@pytest.fixture
def mapped(weights: Path) -> Iterator[mmap.mmap]:
    """A file of weights that this process maps and has read a page of."""
    with (
        (weights / "owner--name" / "a.gguf").open("rb") as file,
        closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as view,
    ):
        assert view[:1] == b"1"
        yield view


@pytest.mark.skipif(not Path("/proc/self/numa_maps").exists(), reason="this kernel has no NUMA")
@pytest.mark.usefixtures("mapped")
def test_the_program_prints_one_json_line_about_a_real_process(weights: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "placing.report"],
        env={"WEIGHTS_DIR": str(weights), "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        check=True,
    )
    found = PageReport.model_validate_json(done.stdout)
    assert [shard.path for shard in found.shards] == ["owner--name/a.gguf"]
    assert sum(found.shard_bytes.values()) == mmap.PAGESIZE
    assert sum(found.cpus.values()) == len(list(Path("/proc/self/task").iterdir()))

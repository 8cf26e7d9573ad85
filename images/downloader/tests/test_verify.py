"""`verify`, `verify --repair` and `clean`, as the program does them."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from downloader.exclusive import CLAIM_NAME, exclusive
from images.downloader.tests.support import TINY, a_world
from wire import Lock, discrepancies, read_receipt, stat_files
from wire.order import PROGRESS_NAME, Folder, Order, Phase, Progress

Program = Callable[..., "subprocess.CompletedProcess[str]"]


def is_proven(lock: Lock, folder: Path) -> bool:
    return not list(discrepancies(lock, read_receipt(folder), stat_files(folder, lock)))


@pytest.fixture
def fetched(environment: dict[str, str], program: Program, published: Path, lock: Lock) -> Path:
    tuning = TINY.model_copy(update={"part_bytes": 1000})
    order = Order(lock=lock, sources=(Folder(),), tuning=tuning)
    Path(environment["ORDER_FILE"]).write_text(order.model_dump_json())
    assert program(environment).returncode == 0
    return published


def flip(path: Path) -> None:
    """One byte, with the file's times as they were."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[5500] ^= 1
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_what_was_fetched_is_told_as_done_with_every_file_verified(fetched: Path) -> None:
    progress = Progress.model_validate_json((fetched / PROGRESS_NAME).read_bytes())

    assert progress.phase is Phase.DONE
    assert progress.done_bytes == progress.total_bytes == 25000
    assert all(file.verified for file in progress.files)


def test_what_is_whole_passes_both_looks(
    fetched: Path, environment: dict[str, str], program: Program
) -> None:
    quick = program(environment, "verify")
    full = program(environment, "verify", "--full")

    assert (quick.returncode, full.returncode) == (0, 0)
    assert quick.stdout == "as proven: 3 files, 25000 bytes (by size and time)\n"
    assert full.stdout.endswith("proven: 3 files, 25000 bytes (every byte)\n")
    assert (fetched / "receipt.json").exists()


def test_a_missing_file_is_seen_at_a_look(
    fetched: Path, environment: dict[str, str], program: Program
) -> None:
    (fetched / "Q4" / "one.bin").unlink()

    look = program(environment, "verify", "--quick")

    assert look.returncode == 6
    assert "why: Q4/one.bin: the file is missing" in look.stderr


def test_a_flipped_byte_is_found_by_reading_and_takes_the_proof_away(
    fetched: Path, environment: dict[str, str], program: Program, lock: Lock
) -> None:
    flip(fetched / "Q4" / "one.bin")
    unseen = program(environment, "verify", "--quick")

    full = program(environment, "verify", "--full")

    assert unseen.returncode == 0
    assert full.returncode == 6
    assert f"why: Q4/one.bin: expected sha256 {lock.files[0].sha256}, found " in full.stderr
    assert not is_proven(lock, fetched)


def test_repair_replaces_the_part_that_differs_in_place(
    fetched: Path, environment: dict[str, str], program: Program, lock: Lock, source_dir: Path
) -> None:
    shard = fetched / "Q4" / "one.bin"
    inode = shard.stat().st_ino
    flip(shard)

    repair = program(environment, "verify", "--repair")

    assert repair.returncode == 0, repair.stderr
    assert "Q4/one.bin: 1 of 12 parts differed and were replaced" in repair.stdout
    assert shard.read_bytes() == (source_dir / "Q4" / "one.bin").read_bytes()
    assert shard.stat().st_ino == inode
    assert is_proven(lock, fetched)


def test_repair_brings_back_what_is_missing_or_cut(
    fetched: Path, environment: dict[str, str], program: Program, lock: Lock
) -> None:
    (fetched / "Q4" / "one.bin").unlink()
    os.truncate(fetched / "Q4" / "two.bin", 7)
    (fetched / "receipt.json").unlink()

    repair = program(environment, "verify", "--repair")

    assert repair.returncode == 0, repair.stderr
    assert is_proven(lock, fetched)


@pytest.fixture
def strangers(weights_dir: Path, published: Path) -> list[Path]:
    """What killed runs of other orders left: of another revision, and of another file of this one."""
    other = weights_dir / "owner--model" / "ffffffffffff" / "Q8" / "old.bin.part"
    here = published / "Q8" / "dropped.bin.part"
    for part in (other, here):
        part.parent.mkdir(parents=True)
        part.write_bytes(bytes(5_000_000))
        part.with_name(f"{part.name}.map").write_bytes(b"parts")
    return [other, here]


def test_what_other_orders_left_is_told_with_its_size_and_not_touched(
    strangers: list[Path], environment: dict[str, str], program: Program
) -> None:
    run = program(environment)

    for part in strangers:
        line = f"left by another order, not touched: {part} (0.01 GB)"
        assert any(said.startswith(line) for said in run.stdout.splitlines())
        assert part.exists()


def test_clean_removes_what_other_orders_left_and_nothing_of_this_one(
    strangers: list[Path], fetched: Path, environment: dict[str, str], program: Program
) -> None:
    ours = fetched / "Q4" / "one.bin.part"
    ours.write_bytes(b"on its way")

    clean = program(environment, "clean")

    assert clean.returncode == 0
    assert not any(part.exists() for part in strangers)
    assert ours.exists()
    assert (fetched / "Q4" / "one.bin").exists()


def test_clean_leaves_a_folder_alone_where_another_run_is_at_work(
    strangers: list[Path], environment: dict[str, str], program: Program
) -> None:
    busy = strangers[0].parents[1]

    with exclusive(busy, a_world()):
        clean = program(environment, "clean")

    assert strangers[0].exists()
    assert f"kept {strangers[0]} (0.01 GB): another run is at work there" in clean.stdout
    assert (busy / CLAIM_NAME).exists()


def test_repair_without_a_source_keeps_every_byte(
    fetched: Path, environment: dict[str, str], program: Program, source_dir: Path
) -> None:
    shard = fetched / "Q4" / "one.bin"
    flip(shard)
    shutil.rmtree(source_dir)

    repair = program(environment, "verify", "--repair")

    assert repair.returncode == 5
    assert shard.with_name("one.bin.part").stat().st_size == 12000

"""A second run, and files that are in place already: what is trusted, and what is hashed again."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from downloader.errors import VerificationFailed
from images.downloader.tests.publishing import flip_a_byte, is_proven, leftovers, same_content
from images.downloader.tests.support import a_world
from wire import Lock, read_receipt

Run = Callable[..., None]


def test_a_second_run_needs_no_source_and_says_so_in_one_line(
    run: Run, source_dir: Path, said: list[str]
) -> None:
    run()
    shutil.rmtree(source_dir)
    said.clear()

    run()

    assert said == ["already proven: 3 files, 25000 bytes"]


def test_a_second_run_reads_no_weights(run: Run, published: Path, said: list[str]) -> None:
    run()
    shard = published / "Q4" / "one.bin"
    before = shard.stat()
    flip_a_byte(shard)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    said.clear()

    run()

    assert said == ["already proven: 3 files, 25000 bytes"]


def test_a_touched_file_is_hashed_in_place_and_not_copied(
    run: Run, lock: Lock, source_dir: Path, published: Path, said: list[str]
) -> None:
    run()
    shutil.rmtree(source_dir)
    shard = published / "Q4" / "one.bin"
    inode = shard.stat().st_ino
    os.utime(shard, ns=(1, 1))

    run()

    assert said[-1].endswith("(2 kept, 1 checked in place, 0 fetched)")
    assert shard.stat().st_ino == inode
    assert is_proven(lock, published)


def test_files_already_in_place_without_a_receipt_are_adopted(
    run: Run, lock: Lock, source_dir: Path, published: Path, said: list[str]
) -> None:
    shutil.copytree(source_dir, published)
    shutil.rmtree(source_dir)

    run()

    assert said[-1].endswith("(0 kept, 3 checked in place, 0 fetched)")
    assert is_proven(lock, published)


@pytest.mark.parametrize("damage", [flip_a_byte, lambda path: os.truncate(path, 5)])
def test_a_wrong_file_in_place_is_replaced(
    damage: Callable[[Path], None], run: Run, lock: Lock, source_dir: Path, published: Path
) -> None:
    shutil.copytree(source_dir, published)
    damage(published / "Q4" / "one.bin")

    run()

    assert same_content(lock, source_dir, published)
    assert is_proven(lock, published)


def test_what_was_wrong_in_place_is_said(
    run: Run, lock: Lock, source_dir: Path, published: Path, said: list[str]
) -> None:
    shutil.copytree(source_dir, published)
    flip_a_byte(published / "Q4" / "one.bin")
    os.truncate(published / "Q4" / "two.bin", 5)

    run()

    wrong = [line for line in said if line.startswith("wrong on this disk, will be fetched anew: ")]
    assert wrong[0].endswith("Q4/two.bin: expected 13000 bytes, found 5")
    assert f"Q4/one.bin: expected sha256 {lock.files[0].sha256}, found " in wrong[1]
    assert len(wrong) == 2


def test_a_file_changed_while_it_is_hashed_in_place_is_not_trusted(
    run: Run, source_dir: Path, published: Path, said: list[str]
) -> None:
    shutil.copytree(source_dir, published)
    shard = published / "Q4" / "one.bin"
    ticks = iter(range(1, 100))
    restless = a_world(say=said.append, beat=lambda: os.utime(shard, ns=(0, next(ticks))))

    run(world=restless)

    assert (
        "wrong on this disk, will be fetched anew: Q4/one.bin: it was changed while it was read"
        in said
    )


def test_the_destination_itself_can_be_the_source(
    run: Run, lock: Lock, source_dir: Path, published: Path, said: list[str]
) -> None:
    shutil.copytree(source_dir, published)

    run(source_dir=published)

    assert said[-1].endswith("(0 kept, 3 checked in place, 0 fetched)")
    assert same_content(lock, source_dir, published)


def test_a_wrong_file_that_is_its_own_source_is_refused_and_left_alone(
    run: Run, source_dir: Path, published: Path
) -> None:
    shutil.copytree(source_dir, published)
    shard = published / "Q4" / "one.bin"
    flip_a_byte(shard)
    content = shard.read_bytes()

    with pytest.raises(VerificationFailed):
        run(source_dir=published)

    assert shard.read_bytes() == content
    assert leftovers(published) == []


def test_a_symbolic_link_in_the_source_is_followed(
    run: Run, source_dir: Path, published: Path, tmp_path: Path
) -> None:
    (source_dir / "Q4" / "one.bin").rename(tmp_path / "elsewhere")
    (source_dir / "Q4" / "one.bin").symlink_to(tmp_path / "elsewhere")

    run()

    shard = published / "Q4" / "one.bin"
    assert not shard.is_symlink()
    assert shard.read_bytes() == (tmp_path / "elsewhere").read_bytes()


def test_a_part_left_by_a_killed_run_is_replaced_not_written_through(
    run: Run, lock: Lock, published: Path, tmp_path: Path
) -> None:
    (published / "Q4").mkdir(parents=True)
    (published / "Q4" / "one.bin.part").write_bytes(b"half")
    bystander = tmp_path / "bystander"
    bystander.write_bytes(b"untouched")
    (published / "Q4" / "two.bin.part").symlink_to(bystander)
    (published / "receipt.json.part").symlink_to(bystander)

    run()

    assert is_proven(lock, published)
    assert leftovers(published) == []
    assert bystander.read_bytes() == b"untouched"


def quantisation(tmp_path: Path, name: str, lock_of: Callable[[Path], Lock]) -> tuple[Path, Lock]:
    """Another set of files of the same model revision."""
    folder = tmp_path / f"source-{name}"
    (folder / name).mkdir(parents=True)
    (folder / name / "shard.bin").write_bytes(name.encode())
    return folder, lock_of(folder)


def test_two_locks_of_one_revision_share_a_folder_and_keep_each_others_proof(
    run: Run, lock_of: Callable[[Path], Lock], weights_dir: Path, tmp_path: Path
) -> None:
    q4_source, q4 = quantisation(tmp_path, "Q4", lock_of)
    q5_source, q5 = quantisation(tmp_path, "Q5", lock_of)

    run(q4, q4_source)
    run(q5, q5_source)

    assert is_proven(q4, weights_dir / q4.folder)
    assert is_proven(q5, weights_dir / q4.folder)


def test_a_proof_whose_file_has_changed_is_not_carried_into_the_next_receipt(
    run: Run, lock_of: Callable[[Path], Lock], weights_dir: Path, tmp_path: Path
) -> None:
    q4_source, q4 = quantisation(tmp_path, "Q4", lock_of)
    q5_source, q5 = quantisation(tmp_path, "Q5", lock_of)
    folder = weights_dir / q4.folder
    run(q4, q4_source)
    (folder / "Q4" / "shard.bin").write_bytes(b"Qx")

    run(q5, q5_source)

    receipt = read_receipt(folder)
    assert receipt is not None
    assert [file.path for file in receipt.files] == ["Q5/shard.bin"]


def test_a_refused_lock_leaves_the_receipt_of_another_in_force(
    run: Run, lock_of: Callable[[Path], Lock], weights_dir: Path, tmp_path: Path
) -> None:
    q4_source, q4 = quantisation(tmp_path, "Q4", lock_of)
    q5_source, q5 = quantisation(tmp_path, "Q5", lock_of)
    run(q4, q4_source)
    flip_a_byte(q5_source / "Q5" / "shard.bin")

    with pytest.raises(VerificationFailed):
        run(q5, q5_source)

    assert is_proven(q4, weights_dir / q4.folder)

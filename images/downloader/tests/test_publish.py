"""Publishing from a folder: what is kept, checked, fetched, refused, and what the receipt then says."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from downloader.errors import ConfigurationInvalid, NotDelivered, VerificationFailed
from images.downloader.tests.publishing import flip_a_byte, is_proven, leftovers, same_content
from images.downloader.tests.support import TINY
from wire import Lock, LockedFile, read_receipt

Run = Callable[..., None]

# FIPS 180-2, appendix B.1: SHA-256 of "abc".
ABC_SHA256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_every_locked_file_is_copied_and_proven(
    run: Run, lock: Lock, source_dir: Path, published: Path
) -> None:
    run()

    assert same_content(lock, source_dir, published)
    assert is_proven(lock, published)
    assert leftovers(published) == []


def test_the_published_hash_of_abc_is_accepted(run: Run, weights_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "abc.txt").write_bytes(b"abc")
    lock = Lock(
        repo="owner/model",
        revision="0" * 40,
        files=(LockedFile(path="abc.txt", size_bytes=3, sha256=ABC_SHA256),),
    )

    run(lock, tmp_path)

    assert is_proven(lock, weights_dir / lock.folder)


def test_a_file_of_many_parts_arrives_whole(
    run: Run, lock: Lock, source_dir: Path, published: Path
) -> None:
    run(tuning=TINY.model_copy(update={"part_bytes": 7, "streams": 4}))

    assert same_content(lock, source_dir, published)
    assert leftovers(published) == []


def test_one_flipped_byte_is_refused_with_both_hashes_and_no_receipt(
    run: Run, lock: Lock, lock_of: Callable[[Path], Lock], source_dir: Path, published: Path
) -> None:
    flip_a_byte(source_dir / "Q4" / "two.bin")
    expected, found = (
        next(file.sha256 for file in each.files if file.path == "Q4/two.bin")
        for each in (lock, lock_of(source_dir))
    )

    with pytest.raises(VerificationFailed) as refusal:
        run()

    assert refusal.value.exit_code == 6
    hashes = f"expected sha256 {expected}, found {found}"
    assert refusal.value.why == (f"Q4/two.bin: {hashes}; fetched again, 0 of its 1 parts differed",)
    assert read_receipt(published) is None
    assert not (published / "Q4" / "two.bin").exists()
    assert leftovers(published) == []


def test_all_wrong_files_are_named_in_one_run_and_the_right_ones_are_kept(
    run: Run, source_dir: Path, published: Path
) -> None:
    flip_a_byte(source_dir / "Q4" / "one.bin")
    os.truncate(source_dir / "Q4" / "two.bin", 12999)

    with pytest.raises(VerificationFailed) as refusal:
        run()

    why = "\n".join(refusal.value.why)
    assert "Q4/one.bin: expected sha256" in why
    assert "Q4/two.bin: expected 13000 bytes, found 12999" in why
    assert (published / "empty.txt").exists()


@pytest.mark.usefixtures("sealed")
def test_a_file_of_the_wrong_size_is_refused_without_reading_it(
    run: Run, lock: Lock, source_dir: Path
) -> None:
    for file in lock.files:
        with (source_dir / file.path).open("ab") as longer:
            longer.write(b"!")

    with pytest.raises(VerificationFailed) as refusal:
        run()

    assert refusal.value.why == (
        "Q4/one.bin: expected 12000 bytes, found 12001",
        "Q4/two.bin: expected 13000 bytes, found 13001",
        "empty.txt: expected 0 bytes, found 1",
    )


def test_every_missing_file_is_named_before_anything_is_copied(
    run: Run, source_dir: Path, published: Path
) -> None:
    (source_dir / "Q4" / "one.bin").unlink()
    (source_dir / "empty.txt").unlink()

    with pytest.raises(NotDelivered) as refusal:
        run()

    why = "\n".join(refusal.value.why)
    assert refusal.value.exit_code == 5
    assert f"{source_dir}/Q4/one.bin (SOURCE_DIR is {source_dir})" in why
    assert f"{source_dir}/empty.txt (SOURCE_DIR is {source_dir})" in why
    assert not (published / "Q4" / "two.bin").exists()


@pytest.mark.parametrize(
    "name",
    ["receipt.json", ".downloader.lock", ".progress.json", "Q4/shard.bin.part", "a.part.map"],
)
def test_a_lock_may_not_name_the_files_of_the_job_itself(name: str, run: Run) -> None:
    file = LockedFile(path=name, size_bytes=3, sha256=ABC_SHA256)
    lock = Lock(repo="owner/model", revision="0" * 40, files=(file,))

    with pytest.raises(ConfigurationInvalid) as refusal:
        run(lock)

    assert refusal.value.why == (name,)

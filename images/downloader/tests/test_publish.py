"""Publishing from a folder: what is kept, checked, fetched, refused, and what the receipt then says."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from downloader.errors import ConfigurationInvalid, NotDelivered, VerificationFailed
from downloader.sources.folder import FolderSource, Slice
from images.downloader.tests.support import TINY, a_world
from wire import Lock, LockedFile, discrepancies, read_receipt, stat_files

Run = Callable[..., None]

# FIPS 180-2, appendix B.1: SHA-256 of "abc".
ABC_SHA256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def is_proven(lock: Lock, folder: Path) -> bool:
    return not list(discrepancies(lock, read_receipt(folder), stat_files(folder, lock)))


def leftovers(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.part"))


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def same_content(lock: Lock, one: Path, other: Path) -> bool:
    return all(
        (one / file.path).read_bytes() == (other / file.path).read_bytes() for file in lock.files
    )


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


@pytest.mark.usefixtures("sealed")
def test_too_little_space_is_refused_before_the_first_byte_with_both_numbers(
    run: Run, lock: Lock, source_dir: Path, weights_dir: Path, published: Path
) -> None:
    needed_bytes = shutil.disk_usage(weights_dir).free + 2**40
    sparse = LockedFile(path="sparse.bin", size_bytes=needed_bytes, sha256="0" * 64)
    with (source_dir / "sparse.bin").open("wb") as file:
        file.truncate(needed_bytes)
    big = Lock(repo=lock.repo, revision=lock.revision, files=(sparse,))
    other = weights_dir / "other--model" / "0123456789ab"
    other.mkdir(parents=True)
    (other / "old.bin").write_bytes(bytes(3_000_000))

    with pytest.raises(NotDelivered, match=str(published)) as refusal:
        run(big)

    why, *holdings = refusal.value.why
    needed, spare, free = (int(word) for word in why.split() if word.isdigit())
    assert refusal.value.exit_code == 5
    assert needed == needed_bytes
    assert spare == 0
    assert 0 < free < needed_bytes
    assert holdings[0] == "other--model/0123456789ab takes 0.00 GB"
    assert leftovers(published) == []


class BrokenFile:
    """Gives one byte, then what a disk gives that was pulled out."""

    def __init__(self) -> None:
        self._first = True

    def seek(self, _offset: int) -> None:
        pass

    def readinto(self, buffer: memoryview, /) -> int:
        if not self._first:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._first = False
        buffer[0] = 0
        return 1


@pytest.fixture
def sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources may be asked for sizes, and for nothing else."""

    def refuse(_source: FolderSource, file: LockedFile, _start: int, _stop: int) -> NoReturn:
        pytest.fail(f"{file.path} was read")

    monkeypatch.setattr(FolderSource, "open", refuse)


def test_a_source_that_fails_while_it_is_read_is_named_with_the_systems_words(
    run: Run, monkeypatch: pytest.MonkeyPatch, published: Path
) -> None:
    @contextmanager
    def pulled_out(
        _source: FolderSource, _file: LockedFile, start: int, stop: int
    ) -> Iterator[Slice]:
        yield Slice(BrokenFile(), start, stop)

    monkeypatch.setattr(FolderSource, "open", pulled_out)

    with pytest.raises(NotDelivered) as refusal:
        run()

    assert refusal.value.exit_code == 5
    assert "Q4/one.bin" in refusal.value.why[0]
    assert "Input/output error" in refusal.value.why[0]
    assert read_receipt(published) is None


def test_a_source_that_became_shorter_after_its_size_was_asked_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch, source_dir: Path
) -> None:
    monkeypatch.setattr(FolderSource, "look", lambda _source, _file: None)
    os.truncate(source_dir / "Q4" / "one.bin", 11000)

    with pytest.raises(VerificationFailed, match="1 of 3") as refusal:
        run()

    assert refusal.value.why == ("Q4/one.bin: it became shorter while it was read",)


def test_every_name_is_durable_before_the_receipt_vouches_for_it(
    run: Run, lock: Lock, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power may fail between any two of these; only this order never leaves a receipt that lies."""
    done: list[str] = []

    def named(call: Callable[[int], None]) -> Callable[[int], None]:
        def recorded(descriptor: int) -> None:
            call(descriptor)
            name = Path(f"/proc/self/fd/{descriptor}").readlink().name
            done.append(f"{call.__name__} {name}")

        return recorded

    pwrite, replace = os.pwrite, Path.replace

    def recorded_pwrite(descriptor: int, content: memoryview, offset: int) -> int:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        done.append(f"write {name}")
        return pwrite(descriptor, content, offset)

    def recorded_replace(old: Path, new: Path) -> Path:
        if not old.name.startswith(".progress"):
            done.append(f"rename {old.name} {new.name}")
        return replace(old, new)

    monkeypatch.setattr(os, "fsync", named(os.fsync))
    monkeypatch.setattr(os, "fdatasync", named(os.fdatasync))
    monkeypatch.setattr(os, "pwrite", recorded_pwrite)
    monkeypatch.setattr(Path, "replace", recorded_replace)
    one = next(file for file in lock.files if file.path == "Q4/one.bin")
    alone = Lock(repo=lock.repo, revision=lock.revision, files=(one,))

    run(alone, tuning=TINY.model_copy(update={"part_bytes": 6000, "streams": 1}))

    revision = published.name
    assert done == [
        "fsync weights",
        "fsync owner--model",
        f"fsync {revision}",
        # An old map is gone for good before the new, empty file exists.
        "fsync Q4",
        "fsync one.bin.part",
        "write one.bin.part.map.part",
        "fsync one.bin.part.map.part",
        "rename one.bin.part.map.part one.bin.part.map",
        "fsync Q4",
        # Each part: bytes, then the line that vouches for them.
        "write one.bin.part",
        "fdatasync one.bin.part",
        "write one.bin.part.map",
        "fdatasync one.bin.part.map",
        "write one.bin.part",
        "fdatasync one.bin.part",
        "write one.bin.part.map",
        "fdatasync one.bin.part.map",
        # The file, and then the receipt that vouches for it.
        "fsync one.bin.part",
        "rename one.bin.part one.bin",
        "fsync Q4",
        "write receipt.json.part",
        "fsync receipt.json.part",
        "rename receipt.json.part receipt.json",
        f"fsync {revision}",
    ]

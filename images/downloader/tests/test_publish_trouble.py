"""Full disks, sources that fail, and names that must be durable before they are vouched for."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from downloader.errors import NotDelivered, VerificationFailed
from downloader.sources.folder import FolderSource, Slice
from images.downloader.tests.publishing import leftovers
from images.downloader.tests.support import TINY
from wire import Lock, LockedFile, read_receipt

Run = Callable[..., None]


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

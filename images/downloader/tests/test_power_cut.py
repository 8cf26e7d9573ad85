"""Power fails after any write that was made durable: what was not is gone, and the next run repairs."""

import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from downloader.partfile import map_of
from downloader.partmap import Content, finished_parts
from images.downloader.tests.support import TINY
from wire import Lock, discrepancies, read_receipt, stat_files

ONE_STREAM = TINY.model_copy(update={"part_bytes": 3000, "streams": 1})


@dataclass
class ForgetfulDisk:
    """Remembers of each file what was synced last, and of each folder the names synced last.

    `cuts`: what a power cut would have left, after every sync.
    """

    root: Path
    contents: dict[int, bytes] = field(default_factory=dict)
    names: dict[Path, dict[str, int]] = field(default_factory=dict)
    cuts: list[dict[Path, bytes]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def synced(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        with self.lock:
            if path.is_dir():
                self.names[path] = {each.name: each.lstat().st_ino for each in path.iterdir()}
            else:
                found = os.fstat(descriptor)
                self.contents[found.st_ino] = os.pread(descriptor, found.st_size, 0)
            self.cuts.append(self._what_is_left())

    def _what_is_left(self) -> dict[Path, bytes]:
        """A file whose name is durable and whose content never was is there, and empty."""
        return {
            (folder / name).relative_to(self.root): self.contents.get(inode, b"")
            for folder, names in self.names.items()
            if folder.is_dir()
            for name, inode in names.items()
            if not (folder / name).is_dir()
        }


@pytest.fixture
def disk(weights_dir: Path, monkeypatch: pytest.MonkeyPatch) -> ForgetfulDisk:
    forgetful = ForgetfulDisk(weights_dir)

    def remembered(sync: Callable[[int], None]) -> Callable[[int], None]:
        def call(descriptor: int) -> None:
            sync(descriptor)
            forgetful.synced(descriptor)

        return call

    monkeypatch.setattr(os, "fsync", remembered(os.fsync))
    monkeypatch.setattr(os, "fdatasync", remembered(os.fdatasync))
    return forgetful


def test_after_a_power_cut_at_any_moment_nothing_lies_and_the_next_run_repairs(
    disk: ForgetfulDisk,
    run: Callable[..., None],
    lock: Lock,
    source_dir: Path,
    published: Path,
) -> None:
    weights_dir = disk.root
    run(tuning=ONE_STREAM)
    cuts = list(disk.cuts)

    assert len(cuts) > 30
    for left in cuts:
        shutil.rmtree(weights_dir)
        for path, content in left.items():
            (weights_dir / path).parent.mkdir(parents=True, exist_ok=True)
            (weights_dir / path).write_bytes(content)
        weights_dir.mkdir(exist_ok=True)
        for file in lock.files:
            right = (source_dir / file.path).read_bytes()
            assert_no_part_is_promised(published / file.path, right, file.sha256, lock.revision)
            if (published / file.path).exists():
                assert (published / file.path).read_bytes() == right
        if (published / "receipt.json").exists():
            assert all((published / file.path).exists() for file in lock.files)

        run(tuning=ONE_STREAM)

        assert not list(discrepancies(lock, read_receipt(published), stat_files(published, lock)))


def assert_no_part_is_promised(final: Path, right: bytes, sha256: str, revision: str) -> None:
    """Every part that the map names is on the disk."""
    if not map_of(final).exists() or not final.with_name(f"{final.name}.part").exists():
        return
    content = Content(
        size_bytes=len(right),
        sha256=sha256,
        revision=revision,
        part_bytes=ONE_STREAM.part_bytes,
    )
    found = final.with_name(f"{final.name}.part").read_bytes()
    for index in finished_parts(content, map_of(final).read_bytes()) or ():
        start, stop = content.span(index)
        assert found[start:stop] == right[start:stop]

"""A disk that runs full on the way: on a tmpfs of a few megabytes, which takes root to mount."""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from downloader import space
from downloader.publish import Means, publish
from hub import Hub
from images.downloader.tests.support import TINY, a_world, noise
from wire import discrepancies, read_receipt, stat_files
from wire.order import PROGRESS_NAME, Order, Phase, Progress

REPO = "owner/model"
SIZE = 2_000_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.fail(f"this test must be allowed to mount a tmpfs: {mounted.stderr}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_becomes_full_pauses_the_job_and_room_lets_it_go_on(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "LOOK_EVERY_S", 0.05)
    model = tmp_path / "hub" / REPO
    model.mkdir(parents=True)
    (model / "big.bin").write_bytes(noise(1, SIZE))
    ballast = small_disk / "ballast"
    paused = threading.Event()
    seen: list[Progress] = []
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if line.startswith("paused: "):
            paused.set()

    def fill_up(_needed: int, _spare: int, _folder: Path, weights_dir: Path) -> None:
        # After the space was counted, somebody else takes all but a part of it.
        ballast.write_bytes(bytes(space.free_bytes(weights_dir) - SIZE // 2))

    monkeypatch.setattr("downloader.fetching.require_room", fill_up)

    def make_room(folder: Path) -> None:
        paused.wait(30)
        until_s = time.monotonic() + 20
        while time.monotonic() < until_s:
            seen.append(Progress.model_validate_json((folder / PROGRESS_NAME).read_bytes()))
            if seen[-1].phase is Phase.PAUSED:
                break
        ballast.unlink()

    with Hub(tmp_path / "hub") as hub:
        lock = hub.lock(REPO, "*")
        helper = threading.Thread(target=make_room, args=(small_disk / lock.folder,))
        helper.start()
        order = Order(lock=lock, sources=(hub.huggingface(REPO),), tuning=TINY)
        publish(order, Means(weights_dir=small_disk), a_world(monotonic=time.monotonic, say=say))
        helper.join()

    folder = small_disk / lock.folder
    assert not list(discrepancies(lock, read_receipt(folder), stat_files(folder, lock)))
    assert (folder / "big.bin").read_bytes() == (model / "big.bin").read_bytes()
    assert seen[-1].phase is Phase.PAUSED
    assert os.strerror(28) in seen[-1].note
    assert str(folder) in seen[-1].note
    assert any("there is room" in line for line in said)


def test_every_folder_is_told_with_what_it_takes_and_what_of_it_is_unfinished(
    tmp_path: Path,
) -> None:
    (tmp_path / "one--model" / "aaa" / "Q4").mkdir(parents=True)
    (tmp_path / "one--model" / "aaa" / "Q4" / "x.bin").write_bytes(bytes(20_000_000))
    (tmp_path / "two--model" / "bbb").mkdir(parents=True)
    with (tmp_path / "two--model" / "bbb" / "y.bin.part").open("wb") as part:
        part.write(bytes(10_000_000))
        part.truncate(1 << 40)

    told = [str(holding) for holding in space.holdings(tmp_path)]

    assert told == [
        "one--model/aaa takes 0.02 GB",
        "two--model/bbb takes 0.01 GB, 0.01 GB of it unfinished",
    ]

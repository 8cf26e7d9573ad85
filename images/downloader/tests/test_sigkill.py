"""SIGKILL at any moment of a fetch: the next run loses at most the part in flight of each stream."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from hub import Hub, Trickle, refetched_bytes
from images.downloader.tests.support import TINY, noise
from wire import Lock, discrepancies, read_receipt, stat_files
from wire.order import Order

REPO, FILE = "owner/model", "big.bin"
SIZE = 6_000_000
STREAMS = TINY.streams


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    model = tmp_path / "hub" / REPO
    model.mkdir(parents=True)
    (model / FILE).write_bytes(noise(1, SIZE))
    with Hub(tmp_path / "hub") as running:
        yield running


@pytest.fixture
def order(hub: Hub, environment: dict[str, str]) -> Order:
    lock = hub.lock(REPO, "*")
    made = Order(lock=lock, sources=(hub.huggingface(REPO),), tuning=TINY)
    Path(environment["ORDER_FILE"]).write_text(made.model_dump_json())
    return made


def sent(hub: Hub) -> int:
    return sum(seen.sent for seen in hub.seen if seen.file == FILE)


def kill_after(more_bytes: int, hub: Hub, environment: dict[str, str]) -> int:
    """Run until the hub has sent so much more, and kill it there; its exit code."""
    goal = sent(hub) + more_bytes
    with subprocess.Popen(
        [sys.executable, "-m", "downloader"], env=environment, stdout=subprocess.DEVNULL
    ) as run:
        while run.returncode is None and sent(hub) < goal:
            with suppress(subprocess.TimeoutExpired):
                run.wait(0.01)
        run.kill()
    return run.returncode


@pytest.mark.parametrize(
    "kills", [3, pytest.param(50, marks=pytest.mark.long)], ids=["3 times", "50 times"]
)
def test_killed_anywhere_the_bytes_fetched_again_are_a_part_for_each_stream_at_most(
    kills: int, hub: Hub, order: Order, environment: dict[str, str], weights_dir: Path
) -> None:
    hub.arm(Trickle(path=FILE, rate=400_000, times=None))
    chance = Random(kills)  # noqa: S311 -- which moments; the same in every run
    lock: Lock = order.lock
    folder = weights_dir / lock.folder
    codes = []
    for kill in range(1, kills + 1):
        # Near the start too, where there is next to nothing, and in the middle of parts.
        codes.append(kill_after(chance.randint(1, 2 * SIZE // kills), hub, environment))

        hub.wait(lambda seen: all(each.ended for each in seen), 10)
        assert refetched_bytes(hub.seen, FILE) <= kill * STREAMS * TINY.part_bytes
        if codes[-1] == 0:
            break
        assert not (folder / FILE).exists()
        assert read_receipt(folder) is None
    hub.disarm()

    last = subprocess.run(
        [sys.executable, "-m", "downloader"],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )

    assert last.returncode == 0, last.stderr
    assert not list(discrepancies(lock, read_receipt(folder), stat_files(folder, lock)))
    assert list(folder.rglob("*.part*")) == []
    assert codes.count(-signal.SIGKILL) >= min(kills, 3) - 1
    assert refetched_bytes(hub.seen, FILE) <= kills * STREAMS * TINY.part_bytes
    sys.stdout.write(
        f"{len(codes)} kills: {refetched_bytes(hub.seen, FILE)} of {SIZE} bytes fetched again\n"
    )


@pytest.mark.usefixtures("order")
def test_a_terminated_run_ends_at_once_while_the_hub_is_silent(
    hub: Hub, environment: dict[str, str], weights_dir: Path
) -> None:
    hub.arm(Trickle(path=FILE, rate=1, times=None))
    with subprocess.Popen(
        [sys.executable, "-m", "downloader"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        hub.wait(lambda seen: sum(each.door == "cdn" for each in seen) >= STREAMS, 20)
        run.send_signal(signal.SIGTERM)
        _, errors = run.communicate(timeout=5)

    assert run.returncode == 143
    assert errors.startswith("stopped by SIGTERM")
    assert list(weights_dir.rglob("*.part.map"))

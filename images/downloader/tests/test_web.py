"""Fetching from a hub that fails in every way we know: right bytes, or a clear error and nothing published."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from downloader.errors import Failure, NotDelivered, VerificationFailed
from downloader.publish import Means, publish
from downloader.world import World
from hub import (
    Corrupt,
    EmptyReply,
    Expire,
    Fin,
    Hub,
    LateFin,
    NoRange,
    Replace,
    Reset,
    Stall,
    Status,
    Trickle,
    Truncate,
    Vanish,
    WrongContentRange,
    refetched_bytes,
)
from hub.faults import Fault
from images.downloader.tests.support import TINY, a_world, noise
from wire import Lock, discrepancies, read_receipt, stat_files
from wire.order import HttpFolder, HuggingFace, Order, Source, Tuning

REPO = "owner/model"
BIG, SMALL = "Q4/big.bin", "config.json"
BIG_BYTES = 1_000_000
PART = TINY.part_bytes
NOWHERE = "http://does-not-exist.invalid"

Fetch = Callable[..., Path]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = tmp_path / "hub" / REPO
    (folder / "Q4").mkdir(parents=True)
    (folder / BIG).write_bytes(noise(1, BIG_BYTES))
    (folder / "Q4" / "other.bin").write_bytes(noise(2, 100_000))
    (folder / SMALL).write_text('{"a": 1}')
    with Hub(tmp_path / "hub") as running:
        yield running


@pytest.fixture
def hub_lock(hub: Hub) -> Lock:
    return hub.lock(REPO, "*")


@pytest.fixture
def real_world(said: list[str]) -> World:
    return a_world(monotonic=time.monotonic, wall=time.time, say=said.append, sleep=time.sleep)


@pytest.fixture
def fetch(hub: Hub, hub_lock: Lock, weights_dir: Path, real_world: World) -> Fetch:
    """Fetch from the hub, or from what is given; the folder where it is published."""

    def run(
        *sources: Source,
        lock: Lock = hub_lock,
        tuning: Tuning = TINY,
        token: str = "",
    ) -> Path:
        order = Order(lock=lock, sources=sources or (hub.huggingface(REPO),), tuning=tuning)
        publish(order, Means(weights_dir=weights_dir, token=token), real_world)
        return weights_dir / lock.folder

    return run


def is_right(lock: Lock, folder: Path, hub_folder: Path) -> bool:
    return not list(discrepancies(lock, read_receipt(folder), stat_files(folder, lock))) and all(
        (folder / file.path).read_bytes() == (hub_folder / file.path).read_bytes()
        for file in lock.files
    )


def test_every_dialect_gives_the_same_files(
    hub: Hub, hub_lock: Lock, fetch: Fetch, weights_dir: Path, tmp_path: Path
) -> None:
    for source in (hub.huggingface(REPO), hub.modelscope(REPO), hub.folder(REPO)):
        folder = fetch(source)

        assert is_right(hub_lock, folder, tmp_path / "hub" / REPO)
        assert list(folder.rglob("*.part*")) == []
        folder.rename(weights_dir / type(source).__name__)


def test_nothing_is_fetched_twice_where_nothing_fails(hub: Hub, fetch: Fetch) -> None:
    fetch()

    assert sum(seen.sent for seen in hub.seen if seen.file == BIG) >= BIG_BYTES
    assert refetched_bytes(hub.seen, BIG) == 0


TRANSIENT = {
    "reset": (Reset(path="*big*", at=300_000, times=2),),
    "reset at once": (Reset(path="*big*", after=0, times=3),),
    "an early end": (Fin(path="*big*", after=1000, times=3),),
    "an end at the last byte": (Fin(path="*big*", at=BIG_BYTES - 1, times=1),),
    "a late end": (LateFin(path="*big*", seconds=0.1),),
    "no answer": (EmptyReply(times=4),),
    "a stall": (Stall(path="*big*", at=500_000),),
    "503 on redirects": (Status(code=503, on="metadata", times=5),),
    "503 on bytes": (Status(code=503, on="bytes", times=5),),
    "429 without a word": (Status(code=429, times=3),),
    "500": (Status(code=500, times=3),),
    "200 instead of 206": (NoRange(path="*big*", times=3),),
    "a shifted Content-Range": (WrongContentRange(path="*big*", times=3),),
    "a wrong total once": (WrongContentRange(path="*big*", shift=0, total=5),),
    "a shorter answer": (Truncate(path="*big*", by=10, times=3),),
    "a flipped byte once": (Corrupt(path="*big*", at=700_000),),
    "two flipped bytes": (
        Corrupt(path="*big*", at=1),
        Corrupt(path="*big*", at=BIG_BYTES - 1),
    ),
    "a signed URL that expires before the resume": (
        Reset(path="*big*", at=300_000, then=Expire()),
    ),
    "all at once": (
        Status(code=503, times=2),
        Reset(path="*big*", at=300_000),
        Fin(path="*big*", at=400_000),
        Corrupt(path="*big*", at=500_000),
        NoRange(path="*other*"),
    ),
}


@pytest.mark.parametrize("faults", TRANSIENT.values(), ids=TRANSIENT)
def test_what_passes_ends_with_the_right_bytes(
    faults: tuple[Fault, ...],
    hub: Hub,
    hub_lock: Lock,
    fetch: Fetch,
    tmp_path: Path,
) -> None:
    hub.arm(*faults)

    folder = fetch()

    assert hub.armed == ()
    assert is_right(hub_lock, folder, tmp_path / "hub" / REPO)
    assert list(folder.rglob("*.part*")) == []


def test_a_try_goes_on_at_the_byte_where_the_last_one_stopped(hub: Hub, fetch: Fetch) -> None:
    hub.arm(Fin(path="*big*", after=30_000))

    fetch()

    assert refetched_bytes(hub.seen, BIG) == 0


def test_a_trickle_is_left_for_a_new_connection_and_its_bytes_are_kept(
    hub: Hub, hub_lock: Lock, fetch: Fetch, tmp_path: Path, said: list[str]
) -> None:
    hub.arm(Trickle(path="*big*", at=500_000, rate=20_000))

    folder = fetch(tuning=TINY.model_copy(update={"min_rate": 200_000}))

    assert is_right(hub_lock, folder, tmp_path / "hub" / REPO)
    assert any("slower than 200.0 kB/s" in line for line in said)


def test_a_line_that_is_always_slow_still_gets_there(
    hub: Hub, hub_lock: Lock, fetch: Fetch, tmp_path: Path
) -> None:
    hub.arm(Trickle(path="*other*", rate=60_000, times=None))

    folder = fetch(tuning=TINY.model_copy(update={"min_rate": 10_000_000}))

    assert is_right(hub_lock, folder, tmp_path / "hub" / REPO)


def test_429_is_obeyed_for_as_long_as_it_says(hub: Hub, fetch: Fetch) -> None:
    hub.arm(Status(code=429, retry_after="1", times=1, path=f"*{SMALL}"))

    fetch()

    asked = [seen for seen in hub.seen if seen.file == SMALL or SMALL in seen.url]
    refused = next(seen for seen in asked if seen.status == 429)
    after = [seen.at_s for seen in asked if seen.at_s > refused.at_s]
    assert min(after) - refused.at_s >= 1


@pytest.mark.parametrize(
    "faults",
    [
        (Status(code=503, times=None),),
        (Reset(after=0, times=None),),
        (EmptyReply(times=None),),
        (NoRange(path="*big*", times=None),),
        (WrongContentRange(path="*big*", times=None),),
        (Stall(after=0, times=None),),
    ],
    ids=["503", "reset", "no answer", "200 instead of 206", "a shifted range", "stall"],
)
def test_a_hub_that_never_gives_a_byte_ends_with_5_and_its_words_and_keeps_what_is_here(
    faults: tuple[Fault, ...], hub: Hub, hub_lock: Lock, fetch: Fetch, weights_dir: Path
) -> None:
    hub.arm(*faults)

    with pytest.raises(NotDelivered, match="no byte came") as refusal:
        fetch()

    assert refusal.value.exit_code == 5
    assert hub.url.removeprefix("http://") in refusal.value.why[0]
    assert read_receipt(weights_dir / hub_lock.folder) is None
    assert (weights_dir / hub_lock.folder / f"{BIG}.part.map").exists()


def test_a_hub_that_goes_down_and_comes_back_costs_a_part_for_each_stream_at_most(
    tmp_path: Path, hub: Hub, hub_lock: Lock, fetch: Fetch
) -> None:
    hub.arm(Stall(path="*big*", at=BIG_BYTES // 2, times=None))
    with pytest.raises(NotDelivered):
        fetch()
    hub.disarm()

    folder = fetch()

    assert is_right(hub_lock, folder, tmp_path / "hub" / REPO)
    assert refetched_bytes(hub.seen, BIG) <= TINY.streams * PART


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (HuggingFace(endpoint=NOWHERE, repo=REPO, revision="0" * 40), "its name can't be resolved"),
        (HttpFolder(url="http://127.0.0.1:9"), "connection refused"),
    ],
)
def test_a_host_that_is_not_there_is_named_with_the_reason(
    source: Source, words: str, fetch: Fetch
) -> None:
    with pytest.raises(NotDelivered) as refusal:
        fetch(source)

    assert words in refusal.value.why[0]


def test_after_a_while_without_a_byte_the_next_source_is_asked(
    hub: Hub, hub_lock: Lock, fetch: Fetch, tmp_path: Path, said: list[str]
) -> None:
    hub.arm(Stall(path="/cdn/*", after=0, times=None))

    folder = fetch(hub.huggingface(REPO), hub.modelscope(REPO))

    assert is_right(hub_lock, folder, tmp_path / "hub" / REPO)
    assert sum("fetching from" in line for line in said) >= 2


def test_a_byte_that_one_source_always_flips_comes_from_the_next(
    hub: Hub, hub_lock: Lock, fetch: Fetch, tmp_path: Path, said: list[str]
) -> None:
    hub.arm(Corrupt(path="/cdn/*big*", at=700_000, times=None))

    folder = fetch(hub.huggingface(REPO), hub.modelscope(REPO))

    assert is_right(hub_lock, folder, tmp_path / "hub" / REPO)
    assert f"{BIG}: 1 of 16 parts differed and were replaced" in said


def test_a_byte_that_is_always_flipped_ends_with_6_and_nothing_published(
    hub: Hub, hub_lock: Lock, fetch: Fetch, weights_dir: Path
) -> None:
    hub.arm(Corrupt(path="*big*", at=700_000, times=None))

    with pytest.raises(VerificationFailed) as refusal:
        fetch()

    (why,) = refusal.value.why
    folder = weights_dir / hub_lock.folder
    assert refusal.value.exit_code == 6
    assert why.startswith(f"{BIG}: expected sha256 ")
    assert why.endswith("fetched again, 0 of its 16 parts differed")
    assert not (folder / BIG).exists()
    assert read_receipt(folder) is None
    assert list(folder.rglob("*.part*")) == []


def test_a_file_replaced_between_drop_and_resume_is_noticed_before_a_byte_of_it_is_taken(
    hub: Hub, hub_lock: Lock, fetch: Fetch, weights_dir: Path
) -> None:
    other = noise(3, BIG_BYTES)
    hub.arm(
        Reset(path="*big*", at=300_000, then=Replace(repo=REPO, path=BIG, content=other)),
        Stall(path="*other*", after=0, seconds=0.2),
    )

    with pytest.raises(Failure) as refusal:
        fetch()

    assert refusal.value.exit_code == 6
    assert "the hub says " in refusal.value.why[0]
    assert read_receipt(weights_dir / hub_lock.folder) is None


def test_a_file_of_another_size_is_refused_with_both_sizes(
    hub: Hub, hub_lock: Lock, fetch: Fetch
) -> None:
    hub.arm(Replace(repo=REPO, path=BIG, content=bytes(BIG_BYTES + 7)))

    with pytest.raises(VerificationFailed) as refusal:
        fetch(hub.folder(REPO))

    assert refusal.value.why == (f"{BIG}: expected {BIG_BYTES} bytes, found {BIG_BYTES + 7}",)


def test_a_revision_that_vanished_ends_with_5_and_is_named(hub: Hub, fetch: Fetch) -> None:
    source = hub.huggingface(REPO)
    hub.arm(Vanish(repo=REPO))

    with pytest.raises(NotDelivered) as refusal:
        fetch(source)

    assert f"the revision {source.revision[:12]} is no longer there" in refusal.value.why[0]
    assert "update-lock" in refusal.value.next_step


def test_a_missing_shard_is_known_before_the_others_are_fetched(
    hub: Hub, hub_lock: Lock, fetch: Fetch, weights_dir: Path
) -> None:
    files = (*hub_lock.files, hub_lock.files[0].model_copy(update={"path": "Q4/z.bin"}))
    lock = hub_lock.model_copy(update={"files": files})

    with pytest.raises(NotDelivered, match="1 of 4 files") as refusal:
        fetch(lock=lock)

    assert "Q4/z.bin" in refusal.value.why[0]
    assert "the file is not there" in refusal.value.why[0]
    assert sum(seen.sent for seen in hub.seen if seen.file == BIG) < BIG_BYTES
    assert read_receipt(weights_dir / lock.folder) is None


class TestGated:
    @pytest.fixture
    def hub(self, tmp_path: Path) -> Iterator[Hub]:
        folder = tmp_path / "hub" / REPO
        folder.mkdir(parents=True)
        (folder / "big.bin").write_bytes(bytes(100_000))
        tokens = {"hf_right": (REPO,), "hf_other": ()}
        with Hub(tmp_path / "hub", gated=(REPO,), tokens=tokens) as running:
            yield running

    @pytest.mark.parametrize("token", ["", "hf_other", "hf_unknown"])
    def test_it_is_explained_with_the_file_for_the_token(self, token: str, fetch: Fetch) -> None:
        with pytest.raises(NotDelivered) as refusal:
            fetch(token=token)

        assert refusal.value.exit_code == 5
        assert "gated" in refusal.value.why[0]
        assert "token" in refusal.value.next_step
        assert token == "" or token not in "\n".join(refusal.value.lines())

    def test_without_a_token_the_next_source_is_asked_at_once(
        self, hub: Hub, hub_lock: Lock, fetch: Fetch, tmp_path: Path
    ) -> None:
        folder = fetch(hub.huggingface(REPO), hub.folder(REPO))

        assert is_right(hub_lock, folder, tmp_path / "hub" / REPO)

    def test_a_token_goes_to_the_hub_and_not_where_the_hub_redirects(
        self, hub: Hub, hub_lock: Lock, fetch: Fetch, tmp_path: Path
    ) -> None:
        folder = fetch(token="hf_right")

        assert is_right(hub_lock, folder, tmp_path / "hub" / REPO)
        assert {seen.authorized for seen in hub.seen if seen.door == "hub" and seen.file} == {True}
        assert {seen.authorized for seen in hub.seen if seen.door == "cdn"} == {False}


def test_a_limit_holds_for_all_streams_together(hub: Hub, fetch: Fetch) -> None:
    started_s = time.monotonic()

    fetch(tuning=TINY.model_copy(update={"limit_rate": 1_000_000}))

    # 1.1 MB at 1 MB/s: the last chunk of each stream may be ahead of its time.
    assert time.monotonic() - started_s >= 0.9


def test_no_more_connections_carry_bytes_than_there_are_streams(hub: Hub, fetch: Fetch) -> None:
    hub.arm(Trickle(path="*", rate=500_000, times=None))

    fetch(tuning=TINY.model_copy(update={"streams": 2}))

    cdn = sorted((seen.at_s, seen.start) for seen in hub.seen if seen.door == "cdn")
    assert len(cdn) >= 18

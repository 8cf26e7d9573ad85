"""What is said of the progress, and how long without a sign is too long. All figures by hand."""

import pytest

from downloader.alive import is_alive
from downloader.board import Board
from downloader.pace import RecentRate
from downloader.progress import duration, eta_s, progress_line
from images.downloader.tests.support import a_world
from wire import LockedFile
from wire.order import Phase

SHARD_BYTES = 49_500_000_000
NINE_SHARDS = tuple(
    LockedFile(path=f"R1-{number}.gguf", size_bytes=SHARD_BYTES, sha256="0" * 64)
    for number in range(1, 10)
)


def test_a_line_has_bytes_share_rate_and_time_left() -> None:
    # 304 GB at 500 MB/s take 608 s; 100 of 404 are 24.75 %, and no more than that is said.
    line = progress_line("fetching", 100_000_000_000, 404_000_000_000, 500e6)

    assert line == "fetching: 100.00 GB of 404.00 GB (24.7 %), 500.0 MB/s, 10 min 8 s left"


def test_without_a_byte_there_is_no_guess_of_the_time_left() -> None:
    assert progress_line("fetching", 0, 10, 0.0) == "fetching: 0.00 GB of 0.00 GB (0.0 %), 0.0 MB/s"


def test_the_last_byte_missing_is_not_all() -> None:
    assert "(99.9 %)" in progress_line("fetching", 9 * SHARD_BYTES - 1, 9 * SHARD_BYTES, 1e6)
    assert "(100.0 %)" in progress_line("fetching", 9 * SHARD_BYTES, 9 * SHARD_BYTES, 1e6)


@pytest.mark.parametrize(
    ("span_s", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (3599.6, "1 h 0 min"),
        (7384, "2 h 3 min"),
        (178_200, "49 h 30 min"),
    ],
)
def test_durations_are_in_the_units_of_their_length(span_s: float, text: str) -> None:
    assert duration(span_s) == text


def test_nine_shards_of_49_5_gb_are_told_exactly() -> None:
    now_s = 1000.0
    board = Board(NINE_SHARDS, a_world(monotonic=lambda: now_s))
    board.enter(Phase.FETCHING)
    for shard in NINE_SHARDS[:4]:
        board.verified(shard)
    board.here(NINE_SHARDS[4].path, 40_000_000_000)
    board.snapshot()

    for second in range(1, 61):
        now_s = 1000.0 + second
        board.moved(NINE_SHARDS[4].path, 125_000_000)  # one gigabit a second
        board.snapshot()
    progress = board.snapshot()

    # 4 x 49.5 + 40 + 60 x 0.125 = 245.5 of 445.5 GB; 200 GB at 125 MB/s take 1600 s.
    assert progress.done_bytes == 245_500_000_000
    assert progress.total_bytes == 445_500_000_000
    assert progress.rate == pytest.approx(125e6)
    assert progress.eta_s == pytest.approx(1600)
    assert [file.verified for file in progress.files] == [True] * 4 + [False] * 5
    assert progress.files[4].have_bytes == 47_500_000_000


def test_what_was_here_before_is_no_speed() -> None:
    now_s = 0.0
    board = Board(NINE_SHARDS, a_world(monotonic=lambda: now_s))
    board.enter(Phase.FETCHING)
    board.snapshot()
    board.here(NINE_SHARDS[0].path, SHARD_BYTES - 1)
    now_s = 1.0

    progress = board.snapshot()

    assert (progress.rate, progress.eta_s) == (0.0, None)


def test_the_rate_is_that_of_the_last_minute_only() -> None:
    rate = RecentRate()
    for second in range(101):
        rate.at(second * 1000, float(second))

    found = [rate.at(100_000, float(second)) for second in (130, 160, 161)]

    # Half of the minute before 130 still moved; 160 looks back to second 100, 161 beyond it.
    assert found == [pytest.approx(500), 0.0, 0.0]


def test_a_clock_on_the_wall_that_is_set_back_changes_no_figure() -> None:
    walls = iter([1_700_000_000.0, 0.0])
    now_s = 0.0
    board = Board(NINE_SHARDS, a_world(monotonic=lambda: now_s, wall=lambda: next(walls)))
    board.enter(Phase.FETCHING)
    board.snapshot()
    board.moved(NINE_SHARDS[0].path, 1_000_000_000)
    now_s = 10.0

    progress = board.snapshot()

    assert progress.rate == pytest.approx(100e6)
    assert progress.eta_s == pytest.approx(4445)


def test_a_done_pass_takes_no_more_time_and_a_silent_one_can_not_tell() -> None:
    assert eta_s(10, 10, 0.0) == 0.0
    assert eta_s(9, 10, 0.0) is None


def test_the_same_trouble_is_said_once_in_ten_seconds_and_shown_always() -> None:
    now_s = 0.0
    said: list[str] = []
    board = Board(NINE_SHARDS, a_world(monotonic=lambda: now_s, say=said.append))

    for second in (0.0, 1.0, 9.9, 10.0):
        now_s = second
        board.trouble("the hub answered 503")
    board.trouble("the hub reset the connection")

    assert said == ["the hub answered 503"] * 2 + ["the hub reset the connection"]
    assert board.snapshot().note == "the hub reset the connection"


def test_a_minute_without_progress_is_too_long() -> None:
    assert is_alive(touched_s=1000.0, now_s=1059.0)
    assert not is_alive(touched_s=1000.0, now_s=1060.0)

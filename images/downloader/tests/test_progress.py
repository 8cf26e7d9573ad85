"""Progress lines, and how long without progress is too long. All figures by hand."""

import pytest

from downloader.alive import is_alive
from downloader.progress import Progress, duration, progress_line
from downloader.world import World


def test_a_line_has_bytes_rate_and_time_left() -> None:
    # 100 GB in 200 s are 500 MB/s; the other 304 GB take 608 s.
    line = progress_line("copying", 100_000_000_000, 404_000_000_000, 200.0)

    assert line == "copying: 100.00 GB of 404.00 GB, 500 MB/s, 10 min 8 s left"


def test_without_a_byte_there_is_no_guess_of_the_time_left() -> None:
    assert progress_line("copying", 0, 10, 5.0) == "copying: 0.00 GB of 0.00 GB, 0 MB/s"


@pytest.mark.parametrize(
    ("span_s", "text"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3599.6, "1 h 0 min"), (7384, "2 h 3 min")],
)
def test_durations_are_in_the_units_of_their_length(span_s: float, text: str) -> None:
    assert duration(span_s) == text


def test_chunks_are_many_but_lines_are_five_seconds_apart() -> None:
    now_s = 0.0
    said: list[str] = []
    beats: list[float] = []
    world = World(
        monotonic=lambda: now_s,
        sleep=lambda _: None,
        say=said.append,
        beat=lambda: beats.append(now_s),
    )
    progress = Progress("copying", 40_000_000_000, world)

    for tick in range(1, 41):  # 40 chunks, four a second
        now_s = tick / 4
        progress.add(1_000_000_000)

    assert said == [
        "copying: 20.00 GB of 40.00 GB, 4000 MB/s, 5 s left",
        "copying: 40.00 GB of 40.00 GB, 4000 MB/s, 0 s left",
    ]
    assert len(beats) == 40


def test_a_minute_without_progress_is_too_long() -> None:
    assert is_alive(touched_s=1000.0, now_s=1059.0)
    assert not is_alive(touched_s=1000.0, now_s=1060.0)

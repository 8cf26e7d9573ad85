"""Waiting and watching, in figures by hand."""

import pytest

from downloader.pace import RateFloor, RateLimit, backoff_s, floor_for, retry_after_s


def test_waits_double_up_to_the_cap() -> None:
    waits = [backoff_s(failures, 60, jitter=0) for failures in (1, 2, 3, 6, 7, 8, 5000)]

    assert waits == [1, 2, 4, 32, 60, 60, 60]


def test_chance_takes_up_to_half_of_a_wait_away() -> None:
    assert backoff_s(4, 60, jitter=1) == 4
    assert backoff_s(4, 60, jitter=0.5) == 6


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("0", 0),
        ("3", 3),
        (" 120 ", 120),
        ("86400", 600),
        # RFC 9110's own example of a date, 30 s after `now`.
        ("Fri, 31 Dec 1999 23:59:59 GMT", 30),
        ("Fri, 31 Dec 1999 23:59:00 GMT", 0),
        ("soon", None),
        ("-1", None),
    ],
)
def test_retry_after_is_understood_in_both_forms_and_capped(
    header: str | None, seconds: float | None
) -> None:
    assert retry_after_s(header, now=946_684_799.0 - 30) == seconds


def test_a_limit_spreads_what_all_streams_take() -> None:
    limit = RateLimit(1000)

    waits = [limit.wait_s(500, 10.0), limit.wait_s(500, 10.0), limit.wait_s(500, 20.0)]

    assert waits == [0.5, 1.0, 0.5]


def test_without_a_limit_nobody_waits() -> None:
    assert RateLimit(None).wait_s(10**12, 0.0) == 0


def test_a_stream_below_its_floor_for_a_whole_window_is_too_slow() -> None:
    floor = RateFloor(1000, 60, now_s=0)

    assert [floor.add(30_000, 30), floor.add(29_999, 60), floor.add(60_000, 120)] == [
        None,
        False,
        True,
    ]


def test_each_slow_connection_in_a_row_halves_the_floor() -> None:
    assert [RateFloor(1000, 60, 0, slow_before=count).floor for count in (0, 1, 3)] == [
        1000,
        500,
        125,
    ]


def test_a_stream_that_our_own_limit_holds_back_is_not_slow() -> None:
    assert floor_for(50_000, None, 4) == 50_000
    assert floor_for(50_000, 100_000, 4) == 12_500
    assert floor_for(50_000, 100_000_000, 4) == 50_000

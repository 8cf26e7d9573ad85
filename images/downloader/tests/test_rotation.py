"""Which source is asked, decided on a clock that the test moves."""

import pytest

from downloader.rotation import Exhausted, Rotation
from downloader.sources.base import Fault, Kind

FILE, OTHER = "a.gguf", "b.gguf"
LATER, REFUSED, DIFFERENT = (Fault(kind, kind.name) for kind in Kind)


def test_the_first_source_is_asked_as_long_as_it_does_well() -> None:
    rotation = Rotation(2, switch_after_s=300, now_s=0)

    for second in range(0, 100_000, 299):
        rotation.went_well(second)
        rotation.faulted(FILE, 0, LATER, second + 298)

    assert rotation.pick(FILE) == 0


def test_without_progress_the_next_one_has_its_turn_and_then_the_first_again() -> None:
    rotation = Rotation(2, switch_after_s=300, now_s=0)
    picked = [rotation.pick(FILE)]

    rotation.faulted(FILE, 0, LATER, 300)
    picked.append(rotation.pick(FILE))
    rotation.went_well(301)
    rotation.faulted(FILE, 1, LATER, 601)
    picked.append(rotation.pick(FILE))

    assert picked == [0, 1, 0]


def test_when_each_had_its_turn_without_a_byte_it_is_over_and_their_words_are_kept() -> None:
    rotation = Rotation(2, switch_after_s=300, now_s=0)
    rotation.faulted(FILE, 0, LATER, 300)

    with pytest.raises(Exhausted):
        rotation.faulted(FILE, 1, LATER, 600)

    assert set(rotation.words) == {0, 1}


def test_as_long_as_single_bytes_come_it_is_never_over() -> None:
    rotation = Rotation(2, switch_after_s=300, now_s=0)

    picked = []
    for turn in range(1, 100):
        now = rotation.pick(FILE)
        picked.append(now)
        rotation.bytes_came(turn * 300 - 1)
        rotation.faulted(FILE, now or 0, LATER, turn * 300)

    assert picked[:5] == [0, 1, 0, 1, 0]


def test_a_stream_that_comes_late_does_not_switch_again() -> None:
    rotation = Rotation(3, switch_after_s=300, now_s=0)
    rotation.faulted(FILE, 0, LATER, 300)

    rotation.faulted(FILE, 0, LATER, 301)

    assert rotation.pick(FILE) == 1


def test_a_wait_that_was_asked_for_is_not_held_against_a_source() -> None:
    rotation = Rotation(1, switch_after_s=300, now_s=0)
    busy = Fault(Kind.LATER, "429", retry_after_s=600)

    rotation.faulted(FILE, 0, busy, 1)
    rotation.faulted(FILE, 0, busy, 601)

    with pytest.raises(Exhausted):
        rotation.faulted(FILE, 0, busy, 901)


def test_a_refusal_leaves_a_source_out_for_that_file_alone() -> None:
    rotation = Rotation(2, switch_after_s=300, now_s=0)

    rotation.faulted(FILE, 0, REFUSED, 1)

    assert (rotation.pick(FILE), rotation.pick(OTHER)) == (1, 0)
    assert rotation.verdicts(FILE) == {0: REFUSED}


def test_something_else_than_asked_for_is_believed_the_third_time() -> None:
    rotation = Rotation(1, switch_after_s=300, now_s=0)

    picked = []
    for _ in range(3):
        rotation.faulted(FILE, 0, DIFFERENT, 1)
        picked.append(rotation.pick(FILE))

    assert picked == [0, 0, None]

"""The part map, on any damage: a part that is not on the disk is never believed to be there."""

from hypothesis import given
from hypothesis import strategies as st

from downloader.partmap import Content, finished_parts, header, line, whole

CONTENT = Content(size_bytes=1000, sha256="a" * 64, revision="0" * 40, part_bytes=64)

parts = st.sets(st.integers(0, CONTENT.count - 1))
contents = st.builds(
    Content,
    size_bytes=st.integers(0, 10_000),
    sha256=st.sampled_from(["a" * 64, "b" * 64]),
    revision=st.sampled_from(["0" * 40, "1" * 40]),
    part_bytes=st.integers(1, 700),
)


def test_a_thousand_bytes_in_parts_of_64_are_16_the_last_of_40() -> None:
    assert CONTENT.count == 16
    assert CONTENT.span(0) == (0, 64)
    assert CONTENT.span(15) == (960, 1000)


def test_a_shard_of_49_5_gb_has_738_parts_of_64_mib() -> None:
    shard = Content(
        size_bytes=49_500_000_000, sha256="a" * 64, revision="0" * 40, part_bytes=64 << 20
    )

    assert shard.count == 738
    assert shard.span(737) == (737 * 67_108_864, 49_500_000_000)
    assert len(whole(shard, set(range(738)))) < 20_000


@given(contents)
def test_the_parts_cover_every_byte_once(content: Content) -> None:
    reached = 0
    for index in range(content.count):
        start, stop = content.span(index)
        assert start == reached < stop
        reached = stop
    assert reached == content.size_bytes


@given(parts)
def test_what_was_written_is_read(finished: set[int]) -> None:
    assert finished_parts(CONTENT, whole(CONTENT, finished)) == finished


@given(contents, contents)
def test_a_map_of_anything_else_is_not_believed(one: Content, other: Content) -> None:
    assert (finished_parts(one, whole(other, {0})) is None) == (one != other)


@given(parts, st.integers(0, 400))
def test_a_map_cut_anywhere_names_no_part_too_many(finished: set[int], cut: int) -> None:
    found = finished_parts(CONTENT, whole(CONTENT, finished)[:cut])

    assert found is None or found <= finished


@given(parts, st.integers(0, 400), st.integers(1, 255))
def test_a_map_with_a_wrong_byte_names_no_part_too_many(
    finished: set[int], at: int, bits: int
) -> None:
    damaged = bytearray(whole(CONTENT, finished))
    damaged[at % len(damaged)] ^= bits

    found = finished_parts(CONTENT, bytes(damaged))

    assert found is None or found <= finished


def test_a_torn_line_costs_its_own_part_only() -> None:
    torn = header(CONTENT) + line(CONTENT, 3) + line(CONTENT, 4)[:-3] + b"\n" + line(CONTENT, 5)

    assert finished_parts(CONTENT, torn) == {3, 5}


def test_garbage_is_no_map() -> None:
    assert finished_parts(CONTENT, b"") is None
    assert finished_parts(CONTENT, b"\0" * 300) is None

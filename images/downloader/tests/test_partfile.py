"""A file on its way: what of an earlier run is believed, and what is not."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from downloader.partfile import PartFile, bytes_on_disk, make_part_of, map_of
from downloader.partmap import Content, line, whole

CONTENT = Content(size_bytes=250, sha256="a" * 64, revision="0" * 40, part_bytes=100)
BYTES = bytes(range(250))


@pytest.fixture
def final(tmp_path: Path) -> Path:
    return tmp_path / "file.bin"


@pytest.fixture
def interrupted(final: Path) -> Path:
    """A run that had the parts 0 and 2, and a half of part 1."""
    parts = PartFile(final, CONTENT)
    for index in (2, 0):
        start, stop = CONTENT.span(index)
        parts.write(memoryview(BYTES[start:stop]), start)
        parts.finish(index)
    parts.write(memoryview(BYTES[100:150]), 100)
    parts.close()
    return final.with_name("file.bin.part")


def missing_after(final: Path, content: Content = CONTENT) -> list[int]:
    parts = PartFile(final, content)
    parts.close()
    return parts.missing


def test_only_finished_parts_count(interrupted: Path, final: Path) -> None:
    assert bytes_on_disk(final, CONTENT) == 150
    assert missing_after(final) == [1]
    assert interrupted.stat().st_size == 250


def test_a_new_file_takes_no_space_before_its_bytes_come(final: Path) -> None:
    huge = Content(size_bytes=1 << 40, sha256="a" * 64, revision="0" * 40, part_bytes=64 << 20)

    parts = PartFile(final, huge)
    parts.close()

    found = final.with_name("file.bin.part").stat()
    assert (found.st_size, found.st_blocks) == (1 << 40, 0)


def truncated(part: Path) -> None:
    os.truncate(part, 200)


def replaced_by_a_link(part: Path) -> None:
    part.rename(part.with_name("elsewhere"))
    part.symlink_to("elsewhere")


def linked_twice(part: Path) -> None:
    part.with_name("twice").hardlink_to(part)


def without_a_map(part: Path) -> None:
    part.with_name("file.bin.part.map").unlink()


def with_a_map_of_zeros(part: Path) -> None:
    part.with_name("file.bin.part.map").write_bytes(bytes(200))


def with_the_map_alone(part: Path) -> None:
    part.unlink()


@pytest.mark.parametrize(
    "damage",
    [
        truncated,
        replaced_by_a_link,
        linked_twice,
        without_a_map,
        with_a_map_of_zeros,
        with_the_map_alone,
    ],
)
def test_what_can_not_be_believed_is_begun_anew(
    damage: Callable[[Path], None], interrupted: Path, final: Path
) -> None:
    damage(interrupted)

    assert missing_after(final) == [0, 1, 2]
    assert interrupted.read_bytes() == bytes(250)
    assert not interrupted.is_symlink()


@pytest.mark.parametrize(
    "other",
    [
        replace(CONTENT, sha256="b" * 64),
        replace(CONTENT, revision="1" * 40),
        replace(CONTENT, part_bytes=50),
        replace(CONTENT, size_bytes=251),
    ],
)
def test_parts_of_anything_else_are_begun_anew(
    other: Content, interrupted: Path, final: Path
) -> None:
    del interrupted

    assert len(missing_after(final, other)) == other.count


def test_a_line_after_a_torn_one_is_read_by_the_next_run(interrupted: Path, final: Path) -> None:
    with map_of(final).open("ab") as torn:
        torn.write(line(CONTENT, 1)[:4])
    parts = PartFile(final, CONTENT)
    parts.write(memoryview(BYTES[100:200]), 100)
    parts.finish(1)
    parts.close()

    assert missing_after(final) == []
    assert map_of(final).read_bytes() == whole(CONTENT, {0, 1, 2})
    assert interrupted.read_bytes() == BYTES


def test_the_frontier_is_where_the_first_gap_is(final: Path) -> None:
    parts = PartFile(final, CONTENT)
    reached = [parts.reached]
    for index in (1, 0, 2):
        parts.finish(index)
        reached.append(parts.reached)
    parts.close()

    assert reached == [0, 0, 200, 250]


def test_a_wrong_file_can_be_taken_as_parts_to_compare(final: Path) -> None:
    final.write_bytes(BYTES)

    make_part_of(final, CONTENT)

    assert not final.exists()
    assert missing_after(final) == []

"""Which parts of a file are on this disk: how the part map is written and read. Touches nothing.

A header that names the content, then a line for every finished part. Each line carries a checksum
that covers the header too, so that neither a torn line nor one of another file counts.
"""

import re
import zlib
from dataclasses import dataclass

_LINE = re.compile(rb"(\d{1,9}) ([0-9a-f]{8})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What is being fetched: parts of anything else are worth nothing."""

    size_bytes: int
    sha256: str
    revision: str
    part_bytes: int

    @property
    def count(self) -> int:
        return -(-self.size_bytes // self.part_bytes)

    def span(self, index: int) -> tuple[int, int]:
        """The bytes of one part, [start, stop)."""
        start = index * self.part_bytes
        return start, min(start + self.part_bytes, self.size_bytes)

    def bytes_in(self, parts: set[int]) -> int:
        return sum(stop - start for start, stop in map(self.span, parts))


def header(content: Content) -> bytes:
    words = (
        f"parts-1 size={content.size_bytes} sha256={content.sha256} "
        f"part={content.part_bytes} revision={content.revision}"
    ).encode()
    return b"%b %08x\n" % (words, zlib.crc32(words))


def line(content: Content, index: int) -> bytes:
    return b"%d %08x\n" % (index, zlib.crc32(b"%d" % index, zlib.crc32(header(content))))


def whole(content: Content, parts: set[int]) -> bytes:
    return header(content) + b"".join(line(content, index) for index in sorted(parts))


def finished_parts(content: Content, found: bytes) -> set[int] | None:
    """None: the map is of something else, or no map. A line that is not whole counts for nothing."""
    first = header(content)
    if not found.startswith(first):
        return None
    parts: set[int] = set()
    for each in found[len(first) :].split(b"\n"):
        if match := _LINE.fullmatch(each):
            index = int(match[1])
            if index < content.count and each + b"\n" == line(content, index):
                parts.add(index)
    return parts

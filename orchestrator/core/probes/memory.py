"""Memory of the whole host: `free`, /proc/meminfo, /proc/buddyinfo, transparent huge pages."""

import re
from typing import Literal

from orchestrator.core.facts import Memory
from orchestrator.core.probes.text import is_cut, lines, size_bytes

MEMORY_ROWS = ("mem", "speicher", "内存")
SWAP_ROWS = ("swap", "交换")
KILOBYTES = re.compile(r"([A-Za-z()_]+):\s+(\d{1,15}) kB\s*", re.ASCII)
ZONE = re.compile(r"Node +\d+, +zone +(\w+)((?: +\d{1,12})+) *", re.ASCII)
PAGE_BYTES_ON_X86 = 4096


def parse_free(text: str) -> Memory:
    """`free -h`. Without units its numbers may be KiB, MiB or bytes, and so say nothing."""
    header: list[str] = []
    rows: dict[str, list[str]] = {}
    for line in lines(text):
        label, colon, values = line.replace("\uff1a", ":").partition(":")
        if colon:
            rows.setdefault(label.strip().lower(), values.split())
        elif not rows:
            header = line.split()
    if is_cut(text) and rows:
        last = rows[list(rows)[-1]]
        del last[-1:]
    memory = next((rows[name] for name in MEMORY_ROWS if name in rows), [])
    swap = next((rows[name] for name in SWAP_ROWS if name in rows), [])
    return Memory(
        total_bytes=_column(memory, 0),
        free_bytes=_column(memory, 2),
        available_bytes=_column(memory, _available(header)),
        swap_total_bytes=_column(swap, 0),
        swap_free_bytes=_column(swap, 2),
    )


def _available(header: list[str]) -> int | None:
    """The column of what is available: the last, in versions of `free` that have it.

    They print buffers and cache as one ("buff/cache"), or with --wide apart, in 7 columns.
    """
    apart = len(header) == len(("total", "used", "free", "shared", "buffers", "cache", "available"))
    as_one = len(header) == len(("total", "used", "free", "shared", "buff/cache", "available"))
    return len(header) - 1 if apart or (as_one and "/" in header[4]) else None


def _column(row: list[str], column: int | None) -> int | None:
    if column is None or column >= len(row):
        return None
    return size_bytes(row[column])


def parse_meminfo(text: str) -> Memory:
    found = (KILOBYTES.fullmatch(line) for line in lines(text))
    sizes = {match[1]: int(match[2]) * 1024 for match in found if match}
    return Memory(
        total_bytes=sizes.get("MemTotal"),
        available_bytes=sizes.get("MemAvailable"),
        free_bytes=sizes.get("MemFree"),
        swap_total_bytes=sizes.get("SwapTotal"),
        swap_free_bytes=sizes.get("SwapFree"),
        hugepages_bytes=sizes.get("Hugetlb"),
    )


def largest_free_block(buddyinfo: str, page_bytes: int) -> int | None:
    """The largest run of free pages in the zones that programs live in.

    The small DMA zones stay unbroken whatever happens, so they count only where no other zone is.
    """
    zones: dict[str, int] = {}
    for line in lines(buddyinfo):
        if match := ZONE.fullmatch(line):
            orders = [order for order, count in enumerate(match[2].split()) if int(count)]
            largest = page_bytes << orders[-1] if orders else 0
            zones[match[1]] = max(zones.get(match[1], 0), largest)
    normal = [zones[zone] for zone in ("Normal", "Movable") if zone in zones]
    return max(normal or zones.values(), default=None)


def parse_thp(text: str) -> Literal["always", "madvise", "never"] | None:
    """/sys/kernel/mm/transparent_hugepage/enabled: the word in brackets is what counts."""
    found = re.search(r"\[(always|madvise|never)\]", text)
    match found and found[1]:
        case "always":
            return "always"
        case "madvise":
            return "madvise"
        case "never":
            return "never"
        case _:
            return None

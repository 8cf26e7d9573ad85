"""The NUMA nodes of this host that have memory, as the kernel lists them."""

from pathlib import Path

HAS_MEMORY = Path("/sys/devices/system/node/has_memory")


def nodes_with_memory(listing: Path = HAS_MEMORY) -> tuple[int, ...] | None:
    """None where the kernel does not say."""
    try:
        return tuple(_numbers(listing.read_text(encoding="ascii").strip()))
    except (OSError, ValueError):
        return None


def _numbers(text: str) -> list[int]:
    """`0-1,3` is 0, 1, 3."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers

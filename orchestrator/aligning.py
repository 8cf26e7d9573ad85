"""Text in columns, as terminals draw it: a Chinese character takes two cells."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

GAP = "  "


def padded(text: str, width: int) -> str:
    """`width`: in cells."""
    return text + " " * (width - cell_len(text))


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A line for each row; all have as many columns."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield GAP.join(map(padded, row, widths)).rstrip()

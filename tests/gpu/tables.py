"""Tables of Markdown, and what stands in their cells."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.core.terms import MIB

FORMS = ("older", "newer")
Report = Mapping[str, Any]


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def or_missing(said: Any, form: Report) -> object:
    try:
        return said(form)
    except (KeyError, TypeError):
        return "not measured"


def mib(size: int) -> str:
    return f"{size / MIB:.0f} MiB"

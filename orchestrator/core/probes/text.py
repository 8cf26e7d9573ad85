"""Reading what was written for people: numbers, sizes, lists of CPUs, labels, in several languages."""

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")

# The most that Linux can be built for on x86 (CONFIG_NR_CPUS): a longer list is a damaged one.
MAX_CPUS = 8192
MIB = 1 << 20

# A bare letter is 1024-based in some tools and versions and 1000-based in others: `free -h`, `df -h`
# and `df -H` all print "125G". It is read as the smaller, so that no one is promised too much.
UNITS = {
    "B": 1,
    **{
        letter + sign: base**power
        for power, letter in enumerate("KMGTP", 1)
        for sign, base in (("", 1000), ("i", 1024), ("iB", 1024))
    },
}
SIZE = re.compile(r"(\d{1,9}(?:[.,]\d{1,4})?)([KMGTP]?i?B?)")
LABELLED = re.compile(r"\s*(.+?)\s*[:\uff1a]\s*(.*?)\s*")  # U+FF1A: the colon of Chinese texts
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def lines(text: str) -> list[str]:
    """Its lines, whatever ends them; without what colours a terminal."""
    return ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")


def is_cut(text: str) -> bool:
    """No line break ends it: its last line may go on, and its last number may lack digits."""
    return not text.endswith("\n")


def whole_lines(text: str) -> list[str]:
    """All lines but one that may go on."""
    return lines(text)[:-1]


def labelled(text: str) -> dict[str, str]:
    """`Label: value` lines, the label in lower case. One given twice with two values is dropped."""
    found: dict[str, str] = {}
    unclear = set()
    for line in lines(text):
        if match := LABELLED.fullmatch(line):
            label = " ".join(match[1].lower().split())
            if found.setdefault(label, match[2]) != match[2]:
                unclear.add(label)
    return {label: value for label, value in found.items() if label not in unclear}


def number(text: str | None) -> float | None:
    """A decimal number, with a point or a comma."""
    if text is None or not re.fullmatch(r"\d{1,12}(?:[.,]\d{1,6})?", text, re.ASCII):
        return None
    return float(text.replace(",", "."))


def whole(text: str | None) -> int | None:
    """Of up to 18 digits: a terabyte in bytes has 13, and a petabyte 16."""
    return int(text) if text and re.fullmatch(r"\d{1,18}", text, re.ASCII) else None


def size_bytes(text: str) -> int | None:
    """`125Gi`, `1,2Gi`, `0B`. A number without a unit could be anything; only 0 is 0."""
    found = SIZE.fullmatch(text)
    if found is None:
        return None
    value, unit = float(found[1].replace(",", ".")), found[2]
    if unit in UNITS:
        return int(value * UNITS[unit])
    return 0 if not unit and value == 0 else None


def cpu_list(text: str) -> tuple[int, ...] | None:
    """`0-3,8 9`, with commas or blanks between. "" is no CPU; a damaged list is None."""
    cpus: set[int] = set()
    for part in text.replace(",", " ").split():
        found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part, re.ASCII)
        if found is None:
            return None
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < MAX_CPUS:
            return None
        cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))


def is_one_run(cpus: Iterable[int]) -> bool:
    """No number is left out between the first and the last."""
    return all(later - earlier == 1 for earlier, later in pairwise(sorted(cpus)))


def first_known(*values: T | None) -> T | None:
    """The first that is known: give the more specific source first."""
    return next((value for value in values if value is not None), None)


def agreed(*values: T | None) -> T | None:
    """The one value of sources that are as good as one another; None where they differ."""
    known = [value for value in values if value is not None]
    return known[0] if known and all(value == known[0] for value in known) else None


def any_label(labels: Mapping[str, str], *names: str) -> str | None:
    """The value under one of a label's translations."""
    return agreed(*(labels.get(name) for name in names))

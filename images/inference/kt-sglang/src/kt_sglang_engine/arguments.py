"""The command line: sglang's own flags, with folders relative to that of the proven weights.

The parser is sglang's, and runs in the child. Here only what the launcher itself needs is read.
Standard library only: the orchestrator's tests read what it renders with this.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

FOLDERS = frozenset({"--model", "--kt-weight-path"})
CARDS = "--tensor-parallel-size"
# Secrets stand in files: a command line is shown by ps, by docker inspect and by the engine's log.
SECRET = frozenset({"--api-key", "--admin-api-key"})


def absolute(arguments: Sequence[str], folder: Path) -> tuple[str, ...]:
    before = ("", *arguments)
    return tuple(
        str(folder / word) if flag in FOLDERS else word
        for flag, word in zip(before, arguments, strict=False)
    )


def cards(arguments: Sequence[str]) -> int:
    """How many GPUs it will use; one where it does not say."""
    said = dict(pairwise(arguments)).get(CARDS, "1")
    return int(said) if said.isdecimal() else 1


def problems(arguments: Sequence[str]) -> tuple[str, ...]:
    """What sglang would take, and the launcher does not."""
    names = {word.partition("=")[0] for word in arguments}
    secret = sorted(names & SECRET)
    missing = [] if "--model" in names else ["--model is not given"]
    return (*missing, *(f"{name} would show the key: it is read from a file" for name in secret))

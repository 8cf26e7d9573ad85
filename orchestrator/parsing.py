"""A command line that can't be read is told like every other error: what, why, next step."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NoReturn

from orchestrator.core.errors import BadConfiguration
from orchestrator.core.settings import Settings

PROGRAM = "python3 -m orchestrator"
# What one begins with, in the order in which one does.
FIRST = ("recommend", "up", "status", "logs", "down")


class Parser(argparse.ArgumentParser):
    """Raises BadConfiguration where argparse would print and exit."""

    def error(self, message: str) -> NoReturn:
        raise BadConfiguration(
            "the command line can't be used", why=message, next_step=f"{self.prog} --help"
        )


def refuse_misplaced_option(word: str) -> None:
    if word.startswith("-") and word not in {"-h", "--help"}:
        raise BadConfiguration(
            "the command line can't be used",
            why=f"{word} stands before the command: options come after it",
            next_step=f"{PROGRAM} --help",
        )


def table(texts: Mapping[str, str]) -> Iterator[str]:
    """A line a command. Argparse's own breaks after the longest name."""
    width = max(map(len, texts))
    return (f"  {name.ljust(width)}  {text}" for name, text in texts.items())


def refuse_unknown(unknown: Sequence[str], command: str | None) -> None:
    """`unknown`: what no option and no place took. `command`: the one that was understood."""
    if not unknown:
        return
    flags = [f"--{name.replace('_', '-')}" for name in Settings.model_fields]
    near = get_close_matches(unknown[0].split("=")[0], flags, n=1)
    raise BadConfiguration(
        "the command line can't be used",
        why=f"{command or 'it'} does not take {' '.join(unknown)}",
        next_step=f"did you mean {near[0]}?" if near else f"{PROGRAM} {command or ''} --help",
    )


def first_steps(texts: Mapping[str, str]) -> str:
    """What to type where nothing was. `texts`: of each command, what it does."""
    return "\n".join(
        (
            f"usage: {PROGRAM} COMMAND",
            "",
            "To begin with:",
            *table({name: texts[name] for name in FIRST}),
            "",
            f"All commands: {PROGRAM} --help",
            f"What one of them takes: {PROGRAM} up --help",
        )
    )

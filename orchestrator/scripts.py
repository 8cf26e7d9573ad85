"""What the programs of the Makefile have in common: they say what they do, and end with an exit code."""

import sys
from collections.abc import Callable

from orchestrator.core.errors import ActionFailed, OrchestratorError


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def exit_code_of(work: Callable[[], None]) -> int:
    """Does it; what stands in its way is said, in the words of every error here."""
    try:
        work()
    except OrchestratorError as error:
        say(f"error: {error.what}\n  why: {error.why}\n  next: {error.next_step}")
        return error.exit_code
    except ActionFailed as failure:
        say(f"error: {failure.reason}")
        return OrchestratorError.exit_code
    return 0

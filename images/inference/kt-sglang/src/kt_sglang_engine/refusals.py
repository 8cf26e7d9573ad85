"""Why the container can't start, each kind with its exit code.

0 told to stop, 1 or above 128 the engine failed, 2 configuration, 3 no GPU that this engine can use,
6 weights not proven.
"""

from dataclasses import dataclass

FAILED = 1
CONFIGURATION = 2
NO_GPU = 3
NOT_PROVEN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What went wrong, in lines that the orchestrator looks for. `why` has one reason a line."""

    what: str
    why: tuple[str, ...]
    next_step: str
    exit_code: int = CONFIGURATION

    def lines(self) -> tuple[str, ...]:
        reasons = (f"why: {reason}" for reason in self.why)
        return (f"error: {self.what}", *reasons, f"next: {self.next_step}")


class Refused(Exception):
    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.what)
        self.verdict = verdict

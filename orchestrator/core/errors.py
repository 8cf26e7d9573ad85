"""Everything that can go wrong on purpose, each with its own exit code.

* OrchestratorError        1
  - BadConfiguration       2  the operator wrote or typed something we can't use
  - UnfitHost              3  no profile can run on this machine
  - UnfitProfile           4  this profile can't run on this machine
  - FetchFailed            5  something could not be fetched or read; worth another try later
  - VerificationFailed     6  bytes are not what the lock says they must be
  - GateStayedShut         7  a service did not come up within its bounded tries
  - AlreadyRunning         9  another run holds the lock
  - DockerUnavailable     10  Docker or Compose did not answer
  - AcceptanceNotMet      11  the stack runs, but the reply is not what the profile promises

`ActionFailed` is an answer, not an end: `execute` retries it and ends with one of the above.
8 (rolled back) belongs to switching profiles; 130 is an interrupt. Bugs are not in the tree.
"""

from typing import ClassVar

INTERRUPTED_EXIT_CODE = 130


class OrchestratorError(Exception):
    """`reasons` and `steps` are for the eye, one a line; `why` and `next_step` hold them in one text."""

    exit_code: ClassVar[int] = 1

    def __init__(
        self, what: str, *, why: str | tuple[str, ...], next_step: str | tuple[str, ...]
    ) -> None:
        super().__init__(what)
        self.what = what
        self.reasons = (why,) if isinstance(why, str) else why
        self.steps = (next_step,) if isinstance(next_step, str) else next_step

    @property
    def why(self) -> str:
        return "; ".join(self.reasons)

    @property
    def next_step(self) -> str:
        return "; ".join(self.steps)

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class BadConfiguration(OrchestratorError):
    exit_code = 2


class UnfitHost(OrchestratorError):
    exit_code = 3


class UnfitProfile(OrchestratorError):
    exit_code = 4


class FetchFailed(OrchestratorError):
    exit_code = 5


class VerificationFailed(OrchestratorError):
    exit_code = 6


class GateStayedShut(OrchestratorError):
    exit_code = 7


class AlreadyRunning(OrchestratorError):
    exit_code = 9


class DockerUnavailable(OrchestratorError):
    exit_code = 10


class AcceptanceNotMet(OrchestratorError):
    exit_code = 11


class ActionFailed(Exception):
    """One attempt at one action failed. `last_words`: what the failing program said, last lines."""

    def __init__(self, reason: str, last_words: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.last_words = last_words

"""What one check found: the row of a table, and the reason of a refusal."""

from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """BLOCK stops `up`. WARN costs speed or safety. UNKNOWN: the host did not say."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARN = "warn"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Said:
    """The same text for both kinds of readers."""

    en: str
    zh: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`check`: its name, for --only and --force. `fix`, `undo`: exact commands, "" where there is none.

    `found` and `needed` are numbers and names, and so have one language. `next_step`: what to do where
    no command does it. `of_host`: no profile can change it, so a blocker ends with exit code 3.
    """

    check: str
    severity: Severity
    found: str
    needed: str
    why: Said
    fix: str = ""
    undo: str = ""
    next_step: Said = Said("", "")
    of_host: bool = False

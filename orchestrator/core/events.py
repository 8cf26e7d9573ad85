"""What happened, in order. The console draws these; the journal keeps them."""

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel

from orchestrator.core.gates import GateResult
from wire.order import Progress


@dataclass(frozen=True, slots=True)
class StepKept:
    """Nothing to do: the gate was open and what stands behind it is current."""

    step: str
    reason: str


@dataclass(frozen=True, slots=True)
class StepStarted:
    step: str
    attempt: int
    cause: str


@dataclass(frozen=True, slots=True)
class ActionProgressed:
    """One line from a long action's own output."""

    step: str
    line: str


@dataclass(frozen=True, slots=True)
class GateChecked:
    step: str
    result: GateResult
    waited_s: float
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class StepPassed:
    step: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class StepGaveUp:
    """One attempt failed. `last_words`: the service's last log lines, taken before any clean-up."""

    step: str
    attempt: int
    reason: str
    last_words: str


Event = StepKept | StepStarted | ActionProgressed | GateChecked | StepPassed | StepGaveUp


def as_record(event: Event) -> dict[str, Any]:
    """The event as JSON-ready values, its kind under "event"."""
    return {"event": type(event).__name__, **asdict(event, dict_factory=_plain)}


def _plain(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: _plain_value(value) for name, value in fields}


def _plain_value(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return value.value if isinstance(value, Enum) else value

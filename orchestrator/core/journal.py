"""The story so far, folded from the journal's records. It remembers; it never decides."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Failure:
    step: str
    attempt: int
    reason: str
    last_words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The last run: what it was, which steps are proven, each failed attempt, how it ended.

    `ended` is None while it runs, and for a run that was cut off.
    """

    command: str = ""
    profile: str = ""
    started_at: str = ""
    proven: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    ended: Mapping[str, Any] | None = None


def story_of(records: Iterable[Mapping[str, Any]]) -> Story:
    """Fold the records of the last run; an empty Story where there was none."""
    story = Story()
    for record in records:
        match record["event"]:
            case "RunStarted":
                story = Story(
                    command=record["command"],
                    profile=record["profile"],
                    started_at=record["at"],
                )
            case "StepPassed" | "StepKept":
                story = replace(story, proven=(*story.proven, record["step"]))
            case "StepGaveUp":
                failure = Failure(
                    record["step"], record["attempt"], record["reason"], record["last_words"]
                )
                story = replace(story, failures=(*story.failures, failure))
            case "RunEnded":
                story = replace(story, ended=record)
            case _:
                pass
    return story

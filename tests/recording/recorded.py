"""A recording as a value, and as the file that it is kept in."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

# Of every answer another: names, moments, how long it took and what was in the cache.
_CHANGES = re.compile(
    r'"(?:id|created|request|cached_tokens)": ?(?:"[^"]*"|\d+)|"timings":\{[^}]*\}'
)
_KEPT_FIRST, _KEPT_LAST = 8, 4
KEPT = Path(__file__).parents[1] / "fixtures/engines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """An answer. `pieces`: of its body, as they came; one where it came whole.

    `left_out`: how many of a long stream were, after the first `_KEPT_FIRST`.
    """

    status: int
    headers: Mapping[str, str]
    chunked: bool
    pieces: tuple[str, ...]
    left_out: int = 0

    def shortened(self) -> "Spoken":
        left_out = max(0, len(self.pieces) - _KEPT_FIRST - _KEPT_LAST)
        kept = (*self.pieces[:_KEPT_FIRST], *self.pieces[_KEPT_FIRST + left_out :])
        return replace(self, pieces=kept, left_out=left_out)

    def without_chance(self) -> tuple[object, ...]:
        """What is the same whenever the same is asked."""
        return self.status, dict(self.headers), self.chunked, _CHANGES.sub("", self.body)

    @property
    def body(self) -> str:
        return "".join(self.pieces)

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """Of a stream that ended as it should, without its comments."""
        *events, last, rest = self.body.split("\n\n")
        assert (last, rest) == ("data: [DONE]", ""), self.body[-200:]
        return [json.loads(one.removeprefix("data: ")) for one in events if one[0] != ":"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """`recorded`: the day, as in 2026-11-30. `on`: model and machine, in words."""

    name: str
    version: str
    on: str
    recorded: str
    model: str
    context_tokens: int
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """`answers`: by the names of `asked.requests`.

    `first`, `second`: of two at once the whole of each; `second_waited`: it came once the first ended.
    `left_after`: what a client had read when it left; `next`: the answer to who came after it.
    """

    engine: Engine
    answers: Mapping[str, Spoken]
    first: Spoken
    second: Spoken
    second_waited: bool
    left_after: tuple[str, ...]
    next: Spoken

    def as_text(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n"


def recording_in(text: str) -> Recording:
    said = json.loads(text)
    return Recording(
        engine=Engine(**said["engine"]),
        answers={name: _spoken(one) for name, one in said["answers"].items()},
        first=_spoken(said["first"]),
        second=_spoken(said["second"]),
        second_waited=said["second_waited"],
        left_after=tuple(said["left_after"]),
        next=_spoken(said["next"]),
    )


def kept() -> dict[str, Recording]:
    """By the name of the file."""
    return {
        path.stem: recording_in(path.read_text("utf-8")) for path in sorted(KEPT.glob("*.json"))
    }


def _spoken(said: Mapping[str, Any]) -> Spoken:
    return replace(Spoken(**said), pieces=tuple(said["pieces"]))

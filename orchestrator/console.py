"""Draws events and errors: a live line on a terminal, plain lines elsewhere. All of it on stderr."""

import re
import time
from collections.abc import Iterator, Sequence
from textwrap import wrap
from types import TracebackType

from rich.console import Console as RichConsole
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.status import Status
from rich.table import Table
from rich.text import Text
from typing_extensions import Self, assert_never

from orchestrator.core.errors import OrchestratorError
from orchestrator.core.events import (
    ActionProgressed,
    Event,
    GateChecked,
    StepGaveUp,
    StepKept,
    StepPassed,
    StepStarted,
)
from orchestrator.core.gates import Verdict
from orchestrator.core.telling import file_rows, in_one_line, stage
from wire.order import Progress

HEARTBEAT_S = 30.0
LEAST_WIDTH = 40
_TYPED = re.compile(r"python3 -m orchestrator(?: [a-z]+)?|--[a-z-]+ [\w.-]+")


class Console:
    """A context manager: leaving it takes the live line away. NO_COLOR is rich's to honour."""

    def __init__(self, *, verbose: bool = False) -> None:
        self._rich = RichConsole(stderr=True, highlight=False, soft_wrap=True)
        self._verbose = verbose
        self._live: Status | None = None
        self._step_started = 0.0
        self._last_said = ("", 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_live()

    def show(self, event: Event) -> None:
        match event:
            case StepKept(step, reason):
                self._end_live()
                self._line("=", "dim", step, reason)
            case StepStarted(step, attempt, cause):
                self._begin(step, cause if attempt == 1 else f"{cause} (attempt {attempt})")
            case ActionProgressed(step, line):
                self._progress(step, line)
            case GateChecked(step, result, waited_s, progress):
                if result.verdict is Verdict.WAIT and progress is not None:
                    self._downloading(step, progress, waited_s)
                elif result.verdict is Verdict.WAIT:
                    self._waiting(step, result.reason, waited_s)
            case StepPassed(step, _, reason):
                self._end_live()
                self._line("+", "green", step, f"{reason} ({self._elapsed_s():.0f} s)")
            case StepGaveUp():
                self._gave_up(event)
            case _:
                assert_never(event)

    def note(self, text: str) -> None:
        self._rich.print(Text(text))

    def explain(self, error: OrchestratorError) -> None:
        self._end_live()
        self._rich.print(Text.assemble(("error: ", "bold red"), error.what))
        for line in explained(error.reasons, error.steps, self._rich.width):
            self._rich.print(Text(line))

    def _begin(self, step: str, cause: str) -> None:
        self._end_live()
        self._step_started = time.monotonic()
        self._last_said = ("", 0.0)
        if self._rich.is_terminal:
            self._live = self._rich.status(Text(f"{step}: {cause}"))
            self._live.start()
        else:
            self._line(">", "", step, cause)

    def _progress(self, step: str, line: str) -> None:
        if self._live:
            room = max(20, self._rich.width - len(step) - 12)
            self._live.update(Text(f"{step}: {line.strip()[:room]}"))
        elif self._verbose:
            self._line("|", "", step, line)

    def _waiting(self, step: str, reason: str, waited_s: float) -> None:
        if self._live:
            self._live.update(Text(f"{step}: {reason} ({waited_s:.0f} s)"))
            return
        said, said_at = self._last_said
        if reason != said or waited_s - said_at >= HEARTBEAT_S:
            self._last_said = (reason, waited_s)
            self._line("?", "", step, f"{reason} ({waited_s:.0f} s)")

    def _downloading(self, step: str, progress: Progress, waited_s: float) -> None:
        words = in_one_line(progress)
        if self._live:
            self._live.update(_drawn(step, words, progress))
            return
        said, said_at = self._last_said
        if stage(progress) != said or waited_s - said_at >= HEARTBEAT_S:
            self._last_said = (stage(progress), waited_s)
            self._line("?", "", step, words)

    def _gave_up(self, event: StepGaveUp) -> None:
        self._end_live()
        self._line("!", "yellow", event.step, f"attempt {event.attempt} failed: {event.reason}")
        for line in event.last_words.splitlines():
            self._rich.print(Text(f"    {line}", "dim"))

    def _line(self, sign: str, style: str, step: str, text: str) -> None:
        self._rich.print(Text.assemble((f"{sign} ", style), (f"{step}: ", "bold"), text))

    def _end_live(self) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._step_started


def explained(reasons: Sequence[str], steps: Sequence[str], width: int) -> Iterator[str]:
    """One below the other, wrapped; what is to be typed as it stands is never cut."""
    for label, texts in (("  why:  ", reasons), ("  next: ", steps)):
        further_in = " " * (len(label) + 2 * (len(texts) > 1))
        for number, text in enumerate(texts):
            lines = wrap(
                _TYPED.sub(lambda typed: typed[0].replace(" ", "\0"), text),
                max(width, LEAST_WIDTH),
                initial_indent=" " * len(label) if number else label,
                subsequent_indent=further_in,
                break_long_words=False,
                break_on_hyphens=False,
            )
            yield from (line.replace("\0", " ") for line in lines)


def _drawn(step: str, words: str, progress: Progress) -> RenderableType:
    """The whole download in a bar and a line, then a line a file."""
    bar = ProgressBar(total=max(1, progress.total_bytes), completed=progress.done_bytes)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for row in file_rows(progress):
        table.add_row(*(Text(cell) for cell in row))
    return Group(Text(f"{step}: {words}"), bar, table)

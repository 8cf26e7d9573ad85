"""A check of several parts: each has its time, and what goes wrong in one stops no other."""

import json
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Report = dict[str, Any]
# To end what a part has started, and to write what was found.
LAST_S = 5.0


class TimeIsUp(BaseException):
    """A part took longer than it may. No check within it may take that for a failure of its own."""


def _nothing() -> Report:
    return {"failed": {}, "seconds": {}, "left_out": []}


@dataclass
class Parts:
    """What has been found until now, on disk. `deadline_s`: of the monotonic clock."""

    path: Path
    deadline_s: float
    report: Report = field(default_factory=_nothing)

    def left_s(self) -> float:
        return self.deadline_s - time.monotonic()

    def save(self) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.report, indent=1), encoding="utf-8")
        part.replace(self.path)

    def must(self, name: str, *, true: bool, why: object) -> None:
        print(f"  {name}: {'ok' if true else f'FAILED: {why}'}", flush=True)
        if not true:
            self.report["failed"][name] = str(why)
        self.save()

    @contextmanager
    def part(self, name: str, at_most_s: float) -> Iterator[None]:
        """At most so long, and never beyond the end of all."""
        began = time.monotonic()

        def end(*_: object) -> None:
            raise TimeIsUp(f"{name} took longer than {time.monotonic() - began:.0f} s")

        before = signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, max(0.01, min(at_most_s, self.left_s() - LAST_S)))
        try:
            yield
        except (Exception, TimeIsUp):  # noqa: BLE001 - the other parts are worth their time
            self.report["failed"][name] = traceback.format_exc()
            print(self.report["failed"][name], flush=True)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.report["seconds"][name] = round(time.monotonic() - began, 1)
        print(f"{name}: {self.report['seconds'][name]} s, {self.left_s():.0f} s left", flush=True)
        self.save()

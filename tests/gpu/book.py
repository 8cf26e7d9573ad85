"""What the checks found, on disk after each of them."""

import json
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpu.kt_legacy import Report


@dataclass
class Book:
    """All reports, on disk after each check."""

    path: Path
    reports: dict[str, Report]

    def save(self) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.reports, indent=1), encoding="utf-8")
        part.replace(self.path)

    @contextmanager
    def checking(self, form: str, name: str) -> Iterator[Report]:
        report = self.reports.setdefault(form, {"failed": {}})
        began = time.monotonic()
        try:
            yield report
        except Exception:  # noqa: BLE001 - the other checks are worth their time
            report["failed"][name] = traceback.format_exc()
        took_s = round(time.monotonic() - began, 2)
        report.setdefault("seconds", {})[name] = took_s
        print(form, name, "FAILED" if name in report["failed"] else "ok", f"{took_s} s", flush=True)
        self.save()

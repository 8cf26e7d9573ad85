"""What programs say, in the words that are told: the weights job's progress, a program's last error."""

from itertools import pairwise

from wire.order import FileProgress, Phase, Progress

SHOWN_FILES = 12
_WHY = "why: "
ACTIVE = frozenset({Phase.FETCHING, Phase.VERIFYING, Phase.REPAIRING, Phase.CHECKING})


def in_one_line(progress: Progress) -> str:
    """`fetching 12.3 of 404.4 GB (3.0 %), 112.0 MB/s, 58 min left, from huggingface`."""
    percent = _percent(progress.done_bytes, progress.total_bytes)
    amount = f"{_gb(progress.done_bytes)} of {_gb(progress.total_bytes)} GB"
    said = [f"{progress.phase.value} {amount} ({percent})"]
    if progress.phase in ACTIVE and progress.rate > 0:
        said.append(f"{progress.rate / 1e6:.1f} MB/s")
    if progress.phase in ACTIVE and progress.eta_s is not None:
        said.append(f"{duration(progress.eta_s)} left")
    if progress.source:
        said.append(f"from {progress.source}")
    return ", ".join(said) + (f"; {progress.note}" if progress.note else "")


def stage(progress: Progress) -> str:
    """What changes seldom: the phase, and why it is in it. For the journal and for heartbeats."""
    return progress.phase.value + (f": {progress.note}" if progress.note else "")


def file_rows(progress: Progress) -> list[tuple[str, str, str]]:
    """Name, bytes, state of each file; of many, those under way and how many the others are."""
    files = list(progress.files)
    if len(files) > SHOWN_FILES:
        files = [file for file in files if file.have_bytes > 0 and not file.verified]
        files = files[: SHOWN_FILES - 1]
    rows = [_row(file) for file in files]
    if more := len(progress.files) - len(files):
        verified = sum(file.verified for file in progress.files)
        rows.append((f"and {more} more", f"{verified} of {len(progress.files)}", "verified"))
    return rows


def _row(file: FileProgress) -> tuple[str, str, str]:
    name = file.path.rsplit("/", 1)[-1]
    amount = f"{_gb(file.have_bytes)} of {_gb(file.size_bytes)} GB"
    return name, amount, _state(file)


def _state(file: FileProgress) -> str:
    if file.verified:
        return "verified"
    if file.have_bytes >= file.size_bytes:
        return "complete, not verified yet"
    return _percent(file.have_bytes, file.size_bytes) if file.have_bytes else "waiting"


def duration(span_s: float) -> str:
    minutes, seconds = divmod(max(0, round(span_s)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{seconds} s"


def _percent(done: int, total: int) -> str:
    # Rounded down: 100 % is said of what is complete, and of nothing else.
    return f"{1000 * done // total / 10:.1f} %" if total else "100.0 %"


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f}" if count >= 10**10 else f"{count / 1e9:.2f}"


def gist(words: str) -> str:
    """What a program said last: its error with the reasons, where it named one, else a line.

    Not simply the last line: Docker may swap lines of standard output and standard error.
    """
    lines = [line for line in words.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    if not errors:
        return lines[-1] if lines else ""
    told = [lines[start:end] for start, end in pairwise([*errors, len(lines)])]
    # Of a program of several processes one says why, and the others only that it has ended.
    last = next((t for t in reversed(told) if any(map(_is_reason, t))), told[-1])
    reasons = [line.removeprefix(_WHY) for line in last if _is_reason(line)]
    what = last[0].removeprefix("error: ")
    return f"{what}: {'; '.join(reasons)}" if reasons else what


def _is_reason(line: str) -> bool:
    return line.startswith(_WHY)

"""What the job says of itself: every part of it writes here, the reporter reads.

The reporter writes `.progress.json` and touches the sign of life once a second, and says one line
about every ten seconds.
"""

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from downloader.pace import RecentRate
from downloader.progress import eta_s, progress_line
from downloader.world import World
from wire import LockedFile
from wire.order import PROGRESS_NAME, FileProgress, Phase, Progress

LINE_EVERY_S = 10.0
WRITE_EVERY_S = 1.0
BLOCK_BYTES = 4096
SPARE_BYTES = 1024


class Board:
    def __init__(self, files: Iterable[LockedFile], world: World) -> None:
        self._files = tuple(files)
        self._world = world
        self._have = {file.path: 0 for file in self._files}
        self._verified: set[str] = set()
        self._moved_bytes = 0
        self._rate = RecentRate()
        self._phase = Phase.CHECKING
        self._source = ""
        self._note = ""
        self._said_note = ("", -LINE_EVERY_S)
        self._lock = threading.Lock()

    def here(self, path: str, have_bytes: int) -> None:
        """So much of the file was here before; that is no speed."""
        with self._lock:
            self._have[path] = have_bytes

    def moved(self, path: str, count: int) -> None:
        with self._lock:
            self._have[path] += count
            self._moved_bytes += count

    def verified(self, file: LockedFile) -> None:
        with self._lock:
            self._have[file.path] = file.size_bytes
            self._verified.add(file.path)

    def enter(self, phase: Phase, note: str = "") -> None:
        with self._lock:
            if phase is not self._phase:
                self._rate.restart()
            self._phase, self._note = phase, note

    @property
    def phase(self) -> Phase:
        return self._phase

    def from_source(self, name: str) -> None:
        with self._lock:
            changed, self._source = name != self._source, name
        if changed:
            self._world.say(f"fetching from {name}")

    def trouble(self, note: str) -> None:
        """Shown at once; said once, and the same again only after a while."""
        now_s = self._world.monotonic()
        with self._lock:
            self._note = note
            said, at_s = self._said_note
            silent = note == said and now_s - at_s < LINE_EVERY_S
            if not silent:
                self._said_note = (note, now_s)
        if not silent:
            self._world.say(note)

    def snapshot(self) -> Progress:
        now_s = self._world.monotonic()
        with self._lock:
            done_bytes = sum(self._have.values())
            total_bytes = sum(file.size_bytes for file in self._files)
            rate = self._rate.at(self._moved_bytes, now_s)
            return Progress(
                phase=self._phase,
                done_bytes=done_bytes,
                total_bytes=total_bytes,
                rate=rate,
                eta_s=eta_s(done_bytes, total_bytes, rate),
                source=self._source,
                note=self._note,
                files=tuple(
                    FileProgress(
                        path=file.path,
                        size_bytes=file.size_bytes,
                        have_bytes=self._have[file.path],
                        verified=file.path in self._verified,
                    )
                    for file in self._files
                ),
                written_at=self._world.wall(),
            )


class Reporter:
    """A thread of its own, so that it goes on while everything else waits for a disk or a server."""

    def __init__(self, board: Board, folder: Path, world: World) -> None:
        self._board = board
        self._folder = folder
        self._world = world
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._report, name="reporter", daemon=True)

    def __enter__(self) -> None:
        self._write()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(WRITE_EVERY_S)
        self._write()

    def _report(self) -> None:
        said_s = self._world.monotonic()
        while not self._over.wait(WRITE_EVERY_S):
            self._world.beat()
            progress = self._write()
            now_s = self._world.monotonic()
            if now_s - said_s >= LINE_EVERY_S and progress.phase is not Phase.PAUSED:
                said_s = now_s
                self._world.say(
                    progress_line(
                        progress.phase.value,
                        progress.done_bytes,
                        progress.total_bytes,
                        progress.rate,
                    )
                )

    def _write(self) -> Progress:
        progress = self._board.snapshot()
        content = _padded(progress.model_dump_json().encode())
        final = self._folder / PROGRESS_NAME
        new = final.with_name(f"{PROGRESS_NAME}.new")
        try:
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
                file.write(content)
            new.replace(final)  # no fsync: it is old in a second
        except OSError:
            # A full disk is just what there is to tell: written over what is there, in one piece.
            with suppress(OSError):
                new.unlink(missing_ok=True)
                _write_over(final, content)
        return progress


def _padded(content: bytes) -> bytes:
    """With blanks up to whole blocks and some to spare, so that a later text fits into its place."""
    return content.ljust(-(-(len(content) + SPARE_BYTES) // BLOCK_BYTES) * BLOCK_BYTES)


def _write_over(final: Path, content: bytes) -> None:
    descriptor = os.open(final, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        there = os.fstat(descriptor).st_size
        text = content.rstrip()
        if len(text) <= there:
            os.pwrite(descriptor, text.ljust(there), 0)
    finally:
        os.close(descriptor)

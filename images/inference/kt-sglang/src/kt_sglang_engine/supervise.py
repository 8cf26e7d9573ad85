"""Runs the engine in a child process: passes on what it says and the order to stop, ends when it ends.

A child, because process number 1 of a container ignores a signal that it has no handler for, and
sglang's own handlers come minutes after its start.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from kt_sglang_engine.stage import READY, Stage, after
from kt_sglang_engine.verdicts import Listener
from wire.telling import tell

STOP = frozenset({signal.SIGTERM, signal.SIGINT})
WATCHED = STOP | {signal.SIGCHLD}
# Compose kills after 30 s.
STOPS_WITHIN_S = 20
# A process that outlives its parent may hold the pipe open.
LAST_WORDS_WITHIN_S = 5
_LINE_ENDS = re.compile(rb"[\r\n]")
_CHUNK_BYTES = 1 << 16


def hold_signals() -> None:
    """From here on signals wait for `supervise`. To be called first, so that none is lost."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)


def supervise(
    command: Sequence[str],
    environment: Mapping[str, str],
    state_file: Path,
    stage: Stage,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """0 when it was told to stop. Otherwise the engine ended by itself: always an error."""
    listener = Listener()
    log = _Log(listener, state_file, stage, clock)
    with subprocess.Popen(  # noqa: S603 - our own words
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # It ends its children by ending its group, which must not be ours.
        start_new_session=True,
    ) as child:
        assert child.stdout is not None  # noqa: S101 - for the type checker
        reader = threading.Thread(target=log.follow, args=(child.stdout,), daemon=True)
        reader.start()
        try:
            stopped = _wait(child)
        finally:
            _end_group(child)
        reader.join(LAST_WORDS_WITHIN_S)
    if stopped:
        return 0
    verdict = listener.verdict(child.returncode)
    tell(*verdict.lines())
    return verdict.exit_code


def _wait(child: "subprocess.Popen[bytes]") -> bool:
    """True: told to stop."""
    while child.poll() is None:
        received = signal.sigwait(WATCHED)
        if received in STOP:
            tell(f"stopping: {signal.Signals(received).name}")
            child.terminate()
            try:
                child.wait(STOPS_WITHIN_S)
            except subprocess.TimeoutExpired:
                tell("the engine does not stop: ending it")
            return True
    return False


def _end_group(child: "subprocess.Popen[bytes]") -> None:
    """Its schedulers too: one that lives on keeps the memory of the card."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


class _Log:
    """The engine's output: passed on byte for byte, and read line by line."""

    def __init__(
        self, listener: Listener, state_file: Path, stage: Stage, clock: Callable[[], float]
    ) -> None:
        self._listener = listener
        self._state_file = state_file
        self._stage = stage
        self._clock = clock
        self._began = clock()
        self._write_stage()

    def follow(self, stream: BinaryIO) -> None:
        rest = b""
        while chunk := os.read(stream.fileno(), _CHUNK_BYTES):
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()
            # A bar of progress begins its line anew, and does not end it.
            *lines, rest = _LINE_ENDS.split(rest + chunk)
            for line in lines:
                self._hear(line.decode(errors="replace"))
        self._hear(rest.decode(errors="replace"))

    def _hear(self, line: str) -> None:
        if warning := self._listener.hear(line):
            tell(warning)
        stage = after(self._stage, line, self._clock() - self._began)
        if stage != self._stage:
            self._stage = stage
            self._listener.ready = stage.status == READY
            self._write_stage()

    def _write_stage(self) -> None:
        """Whole or not at all: the healthcheck reads it at any time.

        A full disk must not end the thread: the engine would wait for whoever reads its lines.
        """
        new = self._state_file.with_suffix(".new")
        with contextlib.suppress(OSError):
            new.write_text(json.dumps(self._stage.record()), encoding="utf-8")
            new.replace(self._state_file)

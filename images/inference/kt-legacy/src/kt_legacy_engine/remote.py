"""The process with the model, seen from the one that answers HTTP."""

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from kt_legacy_engine.model import Logits
from kt_legacy_engine.pipe import Caller, Ready, Spec
from kt_legacy_engine.stage import Load, Progress

SAY_EVERY_S = 5.0
_LOOK_EVERY_S = 1.0
# As a shell does: a program that a signal ended has this and the number of the signal.
_BY_SIGNAL = 128
_SIGNALS = {one.value: one.name for one in signal.Signals}


class RemoteModel:
    def __init__(self, caller: Caller, ready: Ready) -> None:
        self._caller = caller
        self._ready = ready

    @property
    def capacity(self) -> int:
        return self._ready.capacity

    def extend(self, tokens: Sequence[int]) -> Logits:
        return self._caller.extend(tokens)

    def truncate(self, length: int) -> None:
        self._caller.truncate(length)


class Worker:
    """Starts with the object. `command` gets the number of its end of the socket as last argument."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [*command, str(theirs.fileno())],
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                # Upstream prints a line for every module and tensor. What goes wrong is on stderr.
                stdout=subprocess.DEVNULL,
            )
        self._caller = Caller(Connection(ours.detach()))

    def load(self, spec: Spec, progress: Progress, say: Callable[[str], None]) -> RemoteModel:
        began = said_at = time.monotonic()
        self._caller.order(spec)
        loaded, total = 0, sum(Path(shard).stat().st_size for shard in spec.shards)
        while True:
            heard = self._caller.heard(_LOOK_EVERY_S)
            if isinstance(heard, Ready):
                for line in heard.about:
                    say(line)
                progress.about += heard.about
                return RemoteModel(self._caller, heard)
            if heard is not None:
                loaded, total = heard
            now = time.monotonic()
            progress.load = Load(
                loaded_bytes=loaded,
                total_bytes=total,
                read_bytes=_read_bytes(self._process.pid),
                elapsed_s=now - began,
            )
            if now - said_at >= SAY_EVERY_S:
                said_at = now
                say(f"loading: {progress.load.words()}")

    def watch(self, ended: Callable[[int], None]) -> None:
        """Calls `ended` with the exit code, from a thread of its own."""

        def wait() -> None:
            ended(_exit_code(self._process.wait()))

        threading.Thread(target=wait, name="watcher", daemon=True).start()

    def end(self) -> None:
        """At once: it holds nothing that would have to be written."""
        self._process.kill()
        self._process.wait()


def words_of(code: int) -> str:
    if name := _SIGNALS.get(code - _BY_SIGNAL):
        return f"the engine was ended by {name}"
    return f"the engine ended by itself with exit code {code}"


def _exit_code(returncode: int) -> int:
    # It serves until it is killed: an end by itself is always an error.
    return _BY_SIGNAL - returncode if returncode < 0 else returncode or 1


def _read_bytes(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    except OSError:
        return None
    lines = dict(line.split(": ") for line in text.splitlines())
    return int(lines["read_bytes"])

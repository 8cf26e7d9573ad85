"""Runs the engine in a child process: passes on the order to stop, ends when the engine ended.

A child, because loading keeps the interpreter to itself for minutes: no Python signal handler
would run, and process number 1 of a container ignores a signal that it has no handler for.
"""

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable

from wire.telling import tell

STOP = frozenset({signal.SIGTERM, signal.SIGINT})
WATCHED = STOP | {signal.SIGCHLD}


def hold_signals() -> None:
    """From here on signals wait for `supervise`. To be called first, so that none is lost."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)


def supervise(
    engine: Callable[[], int], answers: Callable[[], bool], *, look_every_s: float
) -> int:
    """0 when it was told to stop. Otherwise the engine ended by itself: always an error."""
    child = _start(engine)
    try:
        return _watch(child, answers, look_every_s)
    except BaseException:
        # Without its watcher the engine would run on unseen.
        os.kill(child, signal.SIGKILL)
        raise


def _watch(child: int, answers: Callable[[], bool], look_every_s: float) -> int:
    heard = False
    misses = 0
    while True:
        received = signal.sigtimedwait(WATCHED, look_every_s)
        if received is not None and received.si_signo in STOP:
            tell(f"stopping: {signal.Signals(received.si_signo).name}")
            _end(child, signal.SIGTERM)
            return 0
        if received is not None:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return _failure(status)
            continue
        if answers():
            heard = True
            misses = 0
            continue
        misses += heard
        # When the engine's main loop ends it closes its port and lets the process live.
        if misses > 1:
            tell("the engine no longer listens: ending it")
            _end(child, signal.SIGKILL)
            return 1


def listens(port: int) -> bool:
    """Whether anything accepts connections there. Only a refusal says no: a busy engine is slow."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True


def _start(engine: Callable[[], int]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        for number in STOP:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        code = engine()
    except BaseException:  # noqa: BLE001 - the child must end here whatever happened, and say what
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end(child: int, number: signal.Signals) -> None:
    os.kill(child, number)
    os.waitpid(child, 0)


def _failure(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        tell(f"error: the engine was ended by {signal.Signals(-code).name}")
        return 128 - code
    tell(f"the engine ended by itself with exit code {code}")
    return code or 1

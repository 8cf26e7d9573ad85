"""`python3 -m downloader`: one run, its words on standard output and error, and its exit code."""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

from downloader import alive
from downloader.errors import Failure
from downloader.publish import publish
from downloader.settings import read_lock, read_settings
from downloader.sources import FolderSource, Source
from downloader.world import World

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """A signal asked the job to end: raised wherever it is, so that every `finally` runs."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main(environment: Mapping[str, str], source_in: Callable[[Path], Source]) -> int:
    try:
        for number in SIGNALS:
            signal.signal(number, _stop)
        alive.touch()
        settings = read_settings(environment)
        lock = read_lock(settings.lock_file)
        world = World(monotonic=time.monotonic, sleep=time.sleep, say=_say, beat=alive.touch)
        publish(lock, source_in(settings.source_dir), settings.weights_dir, world)
    except Failure as failure:
        for line in failure.lines():
            sys.stderr.write(f"{line}\n")
        return failure.exit_code
    except Stopped as stopped:
        name = signal.Signals(stopped.number).name
        sys.stderr.write(f"stopped by {name}: finished files are kept, run again to go on\n")
        return 128 + stopped.number
    return 0


def _stop(number: int, _frame: FrameType | None) -> None:
    # The first signal is enough; a second one must not interrupt the cleaning up.
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(number)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(os.environ, FolderSource))

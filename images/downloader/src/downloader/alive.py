"""Is the job getting on? The job touches a file with every chunk; the health check looks how long ago.

Standard library only: this runs every few seconds beside the job.
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

ALIVE_FILE = Path(os.environ.get("TMPDIR", "/tmp")) / "alive"  # noqa: S108 -- the container's tmpfs
QUIET_LIMIT_S = 60


def touch() -> None:
    # A heartbeat that can't be written must not end a copy of hours; the health check shows it.
    with suppress(OSError):
        ALIVE_FILE.touch()


def is_alive(touched_s: float, now_s: float) -> bool:
    return now_s - touched_s < QUIET_LIMIT_S


def main() -> int:
    try:
        touched_s = ALIVE_FILE.stat().st_mtime
    except OSError as error:
        sys.stderr.write(f"no sign of life: {error}\n")
        return 1
    if is_alive(touched_s, time.time()):
        return 0
    sys.stderr.write(f"no progress for {QUIET_LIMIT_S} seconds or more\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

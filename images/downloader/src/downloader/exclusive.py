"""One run at a time on a folder. The kernel drops the claim with the process, so none is ever stale."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from downloader.world import World

CLAIM_NAME = ".downloader.lock"
LOOK_EVERY_S = 0.5


@contextmanager
def exclusive(folder: Path, world: World) -> Iterator[None]:
    """Wait, saying so, until no other run is at work in `folder`."""
    with (folder / CLAIM_NAME).open("ab") as claim:
        if not _claimed(claim.fileno()):
            world.say(f"another run is at work in {folder}: waiting for it to end")
            while not _claimed(claim.fileno()):
                world.beat()
                world.sleep(LOOK_EVERY_S)
        yield


@contextmanager
def claimed_now(claim_file: Path) -> Iterator[bool]:
    """Whether nobody else is at work there; if so nobody will be until this ends."""
    with claim_file.open("ab") as claim:
        yield _claimed(claim.fileno())


def _claimed(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

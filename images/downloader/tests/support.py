"""Worlds and short waits for the tests of the `weights` job."""

import random
from collections.abc import Callable

from downloader.world import World
from wire.order import Tuning

QUICK = Tuning(spare_bytes=0)
# Parts and times a thousandth of the real ones.
TINY = Tuning(
    part_bytes=1 << 16,
    streams=3,
    connect_timeout_s=5,
    idle_timeout_s=0.5,
    min_rate=0,
    min_rate_window_s=0.3,
    backoff_cap_s=0.02,
    switch_after_s=0.5,
    spare_bytes=0,
)


def nothing(*_: object) -> None:
    pass


def a_world(  # noqa: PLR0913 -- each may be replaced by a test
    *,
    monotonic: Callable[[], float] = lambda: 0.0,
    wall: Callable[[], float] = lambda: 0.0,
    random: Callable[[], float] = lambda: 0.0,
    sleep: Callable[[float], None] = nothing,
    say: Callable[[str], None] = nothing,
    beat: Callable[[], None] = nothing,
) -> World:
    """Without time, without chance, and nobody listens."""
    return World(monotonic=monotonic, wall=wall, random=random, sleep=sleep, say=say, beat=beat)


def noise(seed: int, count: int) -> bytes:
    """The same for the same seed, and no two parts of it alike."""
    return random.Random(seed).randbytes(count)  # noqa: S311 -- no secret

"""The outside that time and words go through: given to the job, so that a test can be the outside."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """`wall` is the clock that people set; nothing is decided by it. `random`: 0 to 1, for jitter."""

    monotonic: Callable[[], float]
    wall: Callable[[], float]
    random: Callable[[], float]
    sleep: Callable[[float], None]
    say: Callable[[str], None]
    beat: Callable[[], None]

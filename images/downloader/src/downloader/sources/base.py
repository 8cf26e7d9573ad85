"""What a source is, and the three ways in which it can fail to give bytes."""

from contextlib import AbstractContextManager
from enum import Enum
from typing import Protocol

from wire import LockedFile


class Kind(Enum):
    LATER = "the same request may succeed in a moment"
    REFUSED = "this source does not give this file"
    DIFFERENT = "this source holds something else than the lock asks for"


class Fault(Exception):
    """Why no (more) bytes came. `next_step`: what the operator can do, where we know."""

    def __init__(
        self, kind: Kind, why: str, *, retry_after_s: float | None = None, next_step: str = ""
    ) -> None:
        super().__init__(why)
        self.kind = kind
        self.why = why
        self.retry_after_s = retry_after_s
        self.next_step = next_step


class Reader(Protocol):
    def readinto(self, buffer: memoryview, /) -> int:
        """Fill some of the buffer with what is there; how many bytes. Raises Fault, also at an end."""
        ...


class Source(Protocol):
    @property
    def name(self) -> str:
        """In words for the operator. Never a secret."""
        ...

    def where(self, file: LockedFile) -> str: ...

    def look(self, file: LockedFile) -> Fault | None:
        """What is known to be wrong before the first byte, where asking costs nothing."""
        ...

    def open(self, file: LockedFile, start: int, stop: int) -> AbstractContextManager[Reader]:
        """The file's bytes [start, stop). Raises Fault."""
        ...

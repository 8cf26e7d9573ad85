"""Everything that can go wrong on purpose, and the list of what is armed."""

import threading
from fnmatch import fnmatchcase
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Expire(_Value):
    """Every URL that was signed so far has expired."""

    kind: Literal["expire"] = "expire"


class Replace(_Value):
    """Other bytes under the same commit: what a mirror or a plain folder can do."""

    model_config = ConfigDict(val_json_bytes="base64", ser_json_bytes="base64")

    kind: Literal["replace"] = "replace"
    repo: str
    path: str
    content: bytes


class Vanish(_Value):
    """The hub no longer knows that commit. None is the one that `main` names."""

    kind: Literal["vanish"] = "vanish"
    repo: str
    revision: str | None = None


Deed = Expire | Replace | Vanish


class _Fault(_Value):
    """`path`: a glob over the file's path or the URL's path. `times`: None is always."""

    of_bytes: ClassVar[bool] = True

    path: str = "*"
    times: int | None = Field(default=1, ge=1)
    method: Literal["GET", "HEAD"] | None = None
    then: Annotated[Deed, Field(discriminator="kind")] | None = None

    def covered_by(self, start: int, end: int) -> bool:
        """Whether it concerns an answer with the file's bytes from `start` up to `end`."""
        return True


class _AtAnOffset(_Fault):
    """`at`: offset in the file. Without it `after`: offset in the answer's body."""

    at: int | None = None
    after: int = 0

    def offset(self, start: int) -> int:
        return start + self.after if self.at is None else self.at

    def covered_by(self, start: int, end: int) -> bool:
        return start <= self.offset(start) < end


class Reset(_AtAnOffset):
    kind: Literal["reset"] = "reset"


class Fin(_AtAnOffset):
    """An orderly end of the connection, before all the announced bytes were sent."""

    kind: Literal["fin"] = "fin"


class Stall(_AtAnOffset):
    """Silence, and after `seconds` of it an orderly end."""

    kind: Literal["stall"] = "stall"
    seconds: float = 3600


class Trickle(_AtAnOffset):
    kind: Literal["trickle"] = "trickle"
    rate: int = Field(gt=0)


class EmptyReply(_Fault):
    """The connection ends before the status line."""

    of_bytes: ClassVar[bool] = False
    kind: Literal["empty-reply"] = "empty-reply"


class LateFin(_Fault):
    """No Content-Length: only the end of the connection ends the body, and it comes late."""

    kind: Literal["late-fin"] = "late-fin"
    seconds: float = 1


class Status(_Fault):
    of_bytes: ClassVar[bool] = False
    kind: Literal["status"] = "status"
    code: int
    retry_after: str | None = None
    on: Literal["metadata", "bytes"] | None = None


class NoRange(_Fault):
    kind: Literal["norange"] = "norange"


class WrongContentRange(_Fault):
    """The header lies about where the bytes start, or how many there are in all."""

    kind: Literal["wrong-content-range"] = "wrong-content-range"
    shift: int = 1
    total: int = 0


class Corrupt(_Fault):
    """All bits of the file's byte at `at` are flipped."""

    kind: Literal["corrupt"] = "corrupt"
    at: int = Field(ge=0)

    def covered_by(self, start: int, end: int) -> bool:
        return start <= self.at < end


class Truncate(_Fault):
    """A consistent answer that is `by` bytes shorter than what was asked for."""

    kind: Literal["truncate"] = "truncate"
    by: int = Field(gt=0)

    def covered_by(self, start: int, end: int) -> bool:
        return end - start > self.by


class SizeLie(_Fault):
    """Metadata says `delta` more than there is."""

    kind: Literal["sizelie"] = "sizelie"
    delta: int


Fault = (
    Reset
    | Fin
    | Stall
    | Trickle
    | EmptyReply
    | LateFin
    | Status
    | NoRange
    | WrongContentRange
    | Corrupt
    | Truncate
    | SizeLie
)


_LIST: TypeAdapter[list[Fault | Deed]] = TypeAdapter(
    list[Annotated[Fault | Deed, Field(discriminator="kind")]]
)


def read_faults(json: bytes) -> list[Fault | Deed]:
    return _LIST.validate_json(json)


class Target(_Value):
    """What an answer is about, so that faults can be aimed. `file` None: no file's own bytes or link.

    `span`: the file's bytes it holds, [start, end). None: it holds none.
    """

    method: str
    url_path: str
    file: str | None
    span: tuple[int, int] | None


class Armed:
    """The faults that still wait, and how often each may fire."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[Fault, int | None]] = []

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._waiting.append((fault, fault.times))

    def clear(self) -> None:
        with self._lock:
            self._waiting.clear()

    def waiting(self) -> tuple[Fault, ...]:
        with self._lock:
            return tuple(
                fault.model_copy(update={"times": times}) for fault, times in self._waiting
            )

    def lie_about(self, file: str) -> int:
        """How many bytes metadata adds to that file's size."""
        with self._lock:
            return sum(
                fault.delta
                for fault, _ in self._waiting
                if isinstance(fault, SizeLie) and fnmatchcase(file, fault.path)
            )

    def take(self, target: Target) -> tuple[Fault, ...]:
        """Those that fire on this answer: one that replaces it, or all that spoil it.

        Of those that end a connection only the first, so that two of them hit two answers.
        """
        with self._lock:
            aimed: list[Fault] = [fault for fault, _ in self._waiting if _hits(fault, target)]
            replacing: list[Fault] = [
                fault for fault in aimed if isinstance(fault, Status | EmptyReply)
            ]
            ending: list[Fault] = [
                fault for fault in aimed if isinstance(fault, Reset | Fin | Stall)
            ]
            spoiling = [fault for fault in aimed if fault not in ending]
            fired: list[Fault] = replacing[:1] or [*spoiling, *ending[:1]]
            for fault in fired:
                self._count_down(fault)
            return tuple(fired)

    def _count_down(self, fired: Fault) -> None:
        for place, (fault, left) in enumerate(self._waiting):
            if fault is fired and left is not None:
                self._waiting[place] = (fault, left - 1)
        self._waiting = [(fault, left) for fault, left in self._waiting if left != 0]


def _hits(fault: Fault, target: Target) -> bool:
    if fault.method not in {None, target.method} or isinstance(fault, SizeLie):
        return False
    names = (target.url_path, target.file)
    if not any(name is not None and fnmatchcase(name, fault.path) for name in names):
        return False
    if isinstance(fault, Status) and fault.on is not None:
        return (target.span is None) == (fault.on == "metadata")
    if not fault.of_bytes:
        return True
    # An answer to HEAD has no bytes that could go wrong.
    return target.method == "GET" and target.span is not None and fault.covered_by(*target.span)

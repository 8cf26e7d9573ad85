"""What is true of this machine. `None` means "could not tell", never "zero"."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    name: str
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """`busy_ports`: of the ports asked about, those that a program other than ours listens on.

    `index_answers`: does the Python index; asked only where the choice of a profile hangs on it.
    """

    memory_available_bytes: int | None
    disk_free_bytes: int | None
    cpu_flags: frozenset[str] | None
    gpus: tuple[Gpu, ...] | None
    busy_ports: frozenset[int]
    uid: int
    gid: int
    index_answers: bool | None = None

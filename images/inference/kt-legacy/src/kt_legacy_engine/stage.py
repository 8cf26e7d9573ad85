"""How far the engine has come, as told to /health and to the log."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Stage(str, Enum):
    LOADING = "loading"
    WARMING = "warming up"
    READY = "ok"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`loaded_bytes`: of the tensors that are in place. `read_bytes`: from the disk; None: unknown.

    Pages that were in memory before need no reading, so the two differ.
    """

    loaded_bytes: int = 0
    total_bytes: int = 0
    read_bytes: int | None = None
    elapsed_s: float = 0.0

    @property
    def eta_s(self) -> float | None:
        """At the mean pace so far. None: too early to tell."""
        if not 0 < self.loaded_bytes <= self.total_bytes:
            return None
        left = self.total_bytes - self.loaded_bytes
        return self.elapsed_s * left / self.loaded_bytes

    def words(self) -> str:
        share = 100 * self.loaded_bytes / self.total_bytes if self.total_bytes else 0.0
        said = f"{self.loaded_bytes / 1e9:.2f} of {self.total_bytes / 1e9:.2f} GB, {share:.0f} %"
        said += f" after {self.elapsed_s:.0f} s"
        if self.read_bytes is not None:
            said += f", {self.read_bytes / 1e9:.2f} GB read from disk"
        if self.eta_s is not None:
            said += f", about {self.eta_s:.0f} s left"
        return said


@dataclass(slots=True)
class Progress:
    """Written by the thread that has the model, read by the one that answers.

    `about`: which kernels and which GPU, for people.
    """

    stage: Stage = Stage.LOADING
    load: Load = field(default_factory=Load)
    reason: str = ""
    about: list[str] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = {"status": self.stage.value, "about": self.about}
        if self.stage is Stage.LOADING:
            eta_s = self.load.eta_s
            found |= {
                "loaded_bytes": self.load.loaded_bytes,
                "total_bytes": self.load.total_bytes,
                "read_bytes": self.load.read_bytes,
                "elapsed_s": round(self.load.elapsed_s, 1),
                "eta_s": None if eta_s is None else round(eta_s, 1),
            }
        if self.reason:
            found["reason"] = self.reason
        return found

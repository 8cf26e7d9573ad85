"""What one model at one quantisation needs, and how it is served: `configs/profiles/NAME.toml`."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.core.facts import HostFacts
from orchestrator.core.settings import Layer
from wire.weights import RelativePath


class Engine(str, Enum):
    LLAMACPP = "llamacpp"


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FolderSource(_Table):
    """A folder of this host that holds the locked files under their locked paths."""

    kind: Literal["folder"]
    path: Path = Field(description="relative to the project's folder, or absolute")


class Serving(_Table):
    """Defaults for the settings of the same names: an operator may choose otherwise."""

    context_tokens: int
    slots: int
    inference_memory_bytes: int
    load_timeout_s: int


class Needs(_Table):
    """The least a host must have."""

    memory_bytes: int = Field(gt=0, description="free RAM that the engine takes")
    cpu_flags: frozenset[str] = frozenset()


class Acceptance(_Table):
    """The last proof: this prompt, at temperature 0, must bring a reply that holds this text."""

    prompt: str
    contains: str
    max_tokens: int = Field(gt=0)


class Profile(_Table):
    name: str
    summary: str
    engine: Engine
    model_file: RelativePath = Field(description="the file the engine opens: the first shard")
    source: FolderSource
    serving: Serving
    needs: Needs
    acceptance: Acceptance

    @property
    def lock_name(self) -> str:
        return f"{self.name}.json"

    def layer(self) -> Layer:
        """The profile's own choices, as a layer below everything the operator says."""
        values = self.serving.model_dump()
        return Layer(values=values, origins=dict.fromkeys(values, f"profile {self.name}"))


@dataclass(frozen=True, slots=True)
class Pick:
    """A profile, and why this one, in one line."""

    name: str
    reason: str


def pick_profile(
    named: str | None, previous: str | None, known: Iterable[str], facts: HostFacts
) -> Pick:
    """The profile to bring up: the one named, else the one that served last, else by the host."""
    if named is not None:
        return Pick(named, "as you asked")
    others = "another: --profile NAME, one of " + ", ".join(sorted(known))
    if previous is not None:
        return Pick(previous, f"it was chosen last time; {others}")
    gpu = "no NVIDIA GPU found" if not facts.gpus else "no profile for this GPU is installed"
    return Pick("demo", f"{gpu}, so the small CPU model; {others}")

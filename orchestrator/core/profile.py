"""What one model at one quantisation needs, and how it is served: `configs/profiles/NAME.toml`."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from orchestrator.core.facts import HostFacts
from orchestrator.core.settings import Layer
from wire.weights import RelativePath, Repo

SMALL = "smollm2-135m"  # a small real model, from the Python index


class Engine(str, Enum):
    LLAMACPP = "llamacpp"


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


Patterns = Annotated[tuple[str, ...], Field(min_length=1)]


class HuggingFaceSource(_Table):
    """A repository of Hugging Face, or of the mirror that `hf_endpoint` names."""

    kind: Literal["huggingface"]
    repo: Repo
    revision: str = Field("main", description="branch, tag or commit that a new lock is made of")
    patterns: Patterns = Field(description="which files, as in Q4_K_M/*; only for a new lock")


class ModelScopeSource(_Table):
    kind: Literal["modelscope"]
    repo: Repo
    revision: str = "master"
    patterns: Patterns


class HttpSource(_Table):
    """A folder of a web server. Only one with a SHA256SUMS file can make a lock."""

    kind: Literal["http"]
    url: str = Field(pattern=r"^https?://\S+$")
    patterns: Patterns = ("*",)


class FolderSource(_Table):
    """A folder of this host that holds the locked files under their locked paths."""

    kind: Literal["folder"]
    path: Path = Field(description="relative to the project's folder, or absolute")


class WheelSource(_Table):
    """One file in a wheel of the Python index that this host's pip is configured for.

    The lock knows the file by its name alone, without its folder in the wheel.
    """

    kind: Literal["wheel"]
    package: str
    version: str
    member: RelativePath


ProfileSource = Annotated[
    HuggingFaceSource | ModelScopeSource | HttpSource | FolderSource | WheelSource,
    Field(discriminator="kind"),
]


def _one_folder(sources: tuple[ProfileSource, ...]) -> tuple[ProfileSource, ...]:
    if sum(isinstance(source, FolderSource) for source in sources) > 1:
        message = "at most one of them can be a folder"
        raise ValueError(message)
    return sources


class Serving(_Table):
    """Defaults for the settings of the same names: an operator may choose otherwise."""

    context_tokens: int
    slots: int
    inference_memory_bytes: int
    load_timeout_s: int
    system_message: str = Field("", description="what the model is told before a chat begins")


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
    sources: Annotated[
        tuple[ProfileSource, ...], Field(min_length=1), AfterValidator(_one_folder)
    ] = Field(description="where the weights are to be had, in order of preference")
    serving: Serving
    needs: Needs
    acceptance: Acceptance

    @property
    def lock_name(self) -> str:
        return f"{self.name}.json"

    def layer(self) -> Layer:
        """The profile's own choices, as a layer below everything the operator says."""
        values = self.serving.model_dump(exclude_unset=True)
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
    known = frozenset(known)
    if named is not None:
        return Pick(named, "as you asked")
    others = "another: --profile NAME, one of " + ", ".join(sorted(known))
    if previous is not None:
        return Pick(previous, f"it was chosen last time; {others}")
    if facts.gpus:
        return Pick("demo", f"no profile for this GPU is installed, so the test model; {others}")
    if SMALL in known and facts.index_answers:
        return Pick(SMALL, f"no NVIDIA GPU found, so a small model for the CPU; {others}")
    no_index = "" if facts.index_answers is None else " and no Python index answers"
    return Pick("demo", f"no NVIDIA GPU found{no_index}, so the test model; {others}")


def wants_index(named: str | None, previous: str | None, facts: HostFacts) -> bool:
    """Does the choice hang on whether the Python index answers? Asking takes time."""
    return named is None and previous is None and not facts.gpus

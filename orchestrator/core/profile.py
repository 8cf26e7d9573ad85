"""What one model at one quantisation needs, and how it is served: `configs/profiles/NAME.toml`."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from orchestrator.core.gateway_table import GatewayTable
from orchestrator.core.settings import Layer
from wire.weights import RelativePath, Repo


class Engine(str, Enum):
    """The program that runs the model: see docs/profiles.md for what each can read."""

    LLAMACPP = "llamacpp"
    KT_LEGACY = "kt-legacy"
    KT_SGLANG = "kt-sglang"


class Route(str, Enum):
    """By what compromise a model comes to run on a small host; best first."""

    FULL = "full model"
    DYNAMIC = "dynamic quant"
    DISTILLATION = "distillation"
    OTHER = "other model"
    SMALL = "small model"
    TEST = "test model"


class Status(str, Enum):
    """How far a profile can be trusted to run as described."""

    PROVEN = "proven here"
    DOCUMENTED = "documented upstream"
    EXPERIMENTAL = "experimental"


def _wrong(place: tuple[str, ...], what: str) -> PydanticCustomError:
    """A mistake that shows only in several fields together; `place` is the one to correct."""
    return PydanticCustomError("together", "{what}", {"what": what, "place": place})


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

    context_tokens: int = Field(ge=256, description="context of each slot")
    slots: int = Field(ge=1, le=64, description="requests the engine works on at once")
    max_tokens: int = Field(gt=0, description="the longest reply")
    gpu_experts: int = Field(0, ge=0, description="routed experts of each layer on the GPU")
    load_timeout_s: int = Field(ge=1, description="patience with the engine's start")
    first_token_timeout_s: int = Field(600, gt=0, description="patience with a first token")
    idle_timeout_s: int = Field(120, gt=0, description="patience between two tokens")
    total_timeout_s: int = Field(3600, gt=0, description="the longest that a reply may take")
    system_message: str = Field("", description="what the model is told before a chat begins")


class Figure(_Table):
    """An amount that somebody measured or published. `source`: who, and where to read it."""

    least_bytes: int = Field(gt=0, description="without so much it does not run")
    recommended_bytes: int | None = Field(None, gt=0, description="to run as it should")
    source: str = Field(min_length=1, description="who says so, and where")


class Needs(_Table):
    """The least a host must have, as published or measured; `source` is for the fields beside it.

    `driver_cuda`: the CUDA version that the driver must know, which the engine was built for.
    """

    memory: Figure = Field(description="RAM that the engine takes")
    vram: Figure | None = Field(None, description="VRAM over all cards; none: no GPU needed")
    gpus: int = Field(0, ge=0, description="NVIDIA cards, at the least")
    compute_capability: tuple[int, int] | None = Field(None, description="at the least, as [8, 9]")
    driver_cuda: tuple[int, int] | None = Field(None, description="at the least, as [12, 8]")
    cpu_flags: frozenset[str] = Field(frozenset(), description="as in /proc/cpuinfo")
    source: str = Field(min_length=1, description="who says so of cards and instructions")


class Model(_Table):
    """Which model this is, and what its files hold together. Parameters are as published."""

    family: str = Field(description="what its makers call it")
    architecture: str = Field(description="as GGUF's general.architecture, or HF's model_type")
    quantisation: str = Field(description="as in Q4_K_M")
    parameters: int = Field(gt=0)
    active_parameters: int | None = Field(None, gt=0, description="of those, used for a token")
    total_bytes: int = Field(gt=0, description="of all files that the patterns name")
    files: int | None = Field(None, gt=0, description="how many; none: not published")
    source: str = Field(min_length=1, description="where the sizes are published")
    also_needs: str = Field("", description="what the engine needs beside these files, in words")


class LlamacppOptions(_Table):
    """What only llamacpp understands."""

    gpu: bool = Field(
        default=False,
        description="all but the routed experts is put on NVIDIA cards where they have room for it; "
        "where not, all of it runs on the CPU",
    )


class KtLegacyOptions(_Table):
    """What only kt-legacy understands. `rules`: a file of configs/placements, without its .toml.

    `cpu_variant`: which of the image's CPU kernels; auto: the best that the processor can run.
    """

    rules: str = Field("single-gpu", pattern=r"^[a-z0-9][a-z0-9-]*$")
    chunk_tokens: int = Field(256, gt=0)
    cpu_variant: Literal["auto", "bf16", "fancy", "avx512", "avx2"] = "auto"


ExpertMethod = Literal[
    "AMXINT4",
    "AMXINT8",
    "RAWINT4",
    "FP8",
    "BF16",
    "FP8_PERCHANNEL",
    "GPTQ_INT4",
    "MXFP4",
    "MXFP8",
    "LLAMAFILE",
    "MOE_INT4",
    "MOE_INT8",
]


class KtSglangOptions(_Table):
    """What only kt-sglang understands; the names are those of its flags.

    A dense model has no experts, so no `method`: it is served by sglang alone, all of it on the GPU.
    """

    method: ExpertMethod | None = Field(
        None, description="how the CPU computes experts; none: the model is dense"
    )
    attention_backend: Literal["triton", "flashinfer"]
    mem_fraction_static: float = Field(gt=0, lt=1)
    chunked_prefill_size: int = Field(gt=0)
    gpu_prefill_token_threshold: int = Field(0, ge=0)
    deferred_experts_per_token: int = Field(0, ge=0, le=4)
    reasoning_parser: str = ""
    tool_call_parser: str = ""


class Acceptance(_Table):
    """The last proof: this prompt, at temperature 0, must bring a reply that holds this text."""

    prompt: str
    contains: str
    max_tokens: int = Field(gt=0)


class Profile(_Table):
    """One model at one quantisation, and how it is served. See docs/profiles.md."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", description="as the file is called")
    summary: str = Field(description="one line for people")
    engine: Engine = Field(description="the program that runs the model")
    route: Route = Field(description="by what compromise the model comes to run; best first")
    status: Status = Field(description="how far the profile can be trusted")
    rank: int = Field(ge=0, description="within its route and status: lower is recommended first")
    quality: str = Field(min_length=1, description="what is lost against the full model")
    model: Model
    model_file: RelativePath = Field(description="the file the engine opens: the first shard")
    sources: Annotated[
        tuple[ProfileSource, ...], Field(min_length=1), AfterValidator(_one_folder)
    ] = Field(description="where the weights are to be had, in order of preference")
    serving: Serving
    needs: Needs
    acceptance: Acceptance
    llamacpp: LlamacppOptions | None = None
    kt_legacy: KtLegacyOptions | None = None
    kt_sglang: KtSglangOptions | None = None
    gateway: GatewayTable = GatewayTable()

    @model_validator(mode="after")
    def _options_of_its_engine(self) -> Self:
        for engine, options in (
            (Engine.LLAMACPP, self.llamacpp),
            (Engine.KT_LEGACY, self.kt_legacy),
            (Engine.KT_SGLANG, self.kt_sglang),
        ):
            table = engine.value.replace("-", "_")
            needed = engine is not Engine.LLAMACPP
            if options is None and self.engine is engine and needed:
                raise _wrong(("engine",), f"{engine.value} needs a table [{table}]")
            if options is not None and self.engine is not engine:
                raise _wrong(
                    (table,),
                    f"this table is for the engine {engine.value}, and this profile's is "
                    f"{self.engine.value}",
                )
        return self

    @model_validator(mode="after")
    def _experts_of_its_model(self) -> Self:
        """A model of experts says how many of its parameters a token uses; a dense one uses all."""
        options, of_experts = self.kt_sglang, self.model.active_parameters is not None
        if options is None:
            return self
        if of_experts and options.method is None:
            raise _wrong(
                ("kt_sglang", "method"),
                "it is missing: model.active_parameters says that the model has experts, and "
                "without a method sglang would put all of them on the GPU",
            )
        if not of_experts and options.method is not None:
            raise _wrong(
                ("kt_sglang", "method"),
                "it is for models of experts: leave it out, or say model.active_parameters",
            )
        asked = {
            ("kt_sglang", "deferred_experts_per_token"): options.deferred_experts_per_token,
            ("kt_sglang", "gpu_prefill_token_threshold"): options.gpu_prefill_token_threshold,
            ("serving", "gpu_experts"): self.serving.gpu_experts,
        }
        for place, number in asked.items():
            if number and not of_experts:
                raise _wrong(place, f"{number}, and the model has no experts: leave it out")
        return self

    @model_validator(mode="after")
    def _memory_for_its_files(self) -> Self:
        """kt-sglang is left out: it converts the weights, which then have another size."""
        given, total = self.needs.memory.least_bytes, self.model.total_bytes
        if self.engine is Engine.LLAMACPP and given < total:
            holds = f"llamacpp holds all files in RAM, so at least {total:,}"
        elif self.engine is Engine.KT_LEGACY and given < (least := self._least_beside_cards()):
            holds = f"kt-legacy holds in RAM what is not on the cards, so at least {least:,}"
        else:
            return self
        raise _wrong(
            ("needs", "memory", "least_bytes"),
            f"{given:,} is too little for the {total:,} of model.total_bytes: {holds}",
        )

    def _least_beside_cards(self) -> int:
        """What lies on a card takes less there than in the files, and published figures are rounded."""
        on_cards = self.needs.vram.least_bytes if self.needs.vram else 0
        return max(0, self.model.total_bytes * 95 // 100 - on_cards)

    @property
    def may_use_gpu(self) -> bool:
        """It needs none, and uses one that has room: see LlamacppOptions."""
        return self.llamacpp is not None and self.llamacpp.gpu

    @property
    def lock_name(self) -> str:
        return f"{self.name}.json"

    def layer(self) -> Layer:
        """The profile's own choices, as a layer below everything the operator says."""
        values = self.serving.model_dump(exclude_unset=True)
        return Layer(values=values, origins=dict.fromkeys(values, f"profile {self.name}"))

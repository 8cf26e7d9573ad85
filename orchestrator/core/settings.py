"""What the operator chose, and where each choice came from.

Layers, strongest first: flag, ORCH_* variable, appliance.toml, profile, default.
`adapters.environment` reads them; `settle` lays them over one another.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from typing_extensions import Self

from orchestrator.core.errors import BadConfiguration

T = TypeVar("T", Path, str)
Port = Annotated[int, Field(ge=1, le=65535)]


def fits_an_env_file(text: str) -> bool:
    """Compose has no way to write the other signs that all its versions read alike."""
    return not any(sign in text for sign in "'\n\r\\")


def _fits_an_env_file(value: T) -> T:
    if not fits_an_env_file(str(value)):
        message = "a quote, a backslash or a line break can't be passed to Compose"
        raise ValueError(message)
    if any("\ud800" <= sign <= "\udfff" for sign in str(value)):  # bytes that Python could not read
        message = "it is not UTF-8, so it can't be passed to Compose"
        raise ValueError(message)
    return value


def _rate(text: object) -> object:
    """`20M` is 20 000 000 bytes a second."""
    if isinstance(text, str) and (found := RATE.fullmatch(text.strip())):
        return int(found[1]) * {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}[found[2].lower()]
    return text


def _language(text: object) -> object:
    """`zh-CN` and `zh_CN.UTF-8` are zh."""
    return re.split("[-_.]", text.lower())[0] if isinstance(text, str) else text


def _cpus_in_order(text: str) -> str:
    """Docker refuses `5-2` only when it makes the container."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            message = f"{part} ends before it begins"
            raise ValueError(message)
    return text


def _without_password(url: str) -> str:
    if "@" in url:
        message = "what stands before the @ would end up in every image"
        raise ValueError(message)
    return url


RATE = re.compile(r"(\d+)([kKmMgG]?)")
Folder = Annotated[Path, AfterValidator(_fits_an_env_file)]
Endpoint = Annotated[
    str, Field(pattern=r"^https?://[^\s?#]+$"), AfterValidator(lambda url: url.rstrip("/"))
]
Mirror = Annotated[str, Field(pattern=r"^https?://\S+$"), AfterValidator(_without_password)]
Language = Annotated[Literal["", "en", "zh"], BeforeValidator(_language)]
Rate = Annotated[int, BeforeValidator(_rate), Field(gt=0)]


class Settings(BaseModel):
    """Every setting, with its default. Relative folders are relative to the project's folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: str = Field(
        "appliance",
        pattern=r"^[a-z0-9][a-z0-9_-]*$",
        description="Compose project: the prefix of containers, networks and volumes",
    )
    language: Language = Field("", description="of doctor, en or zh; none: your locale's")
    profile: str | None = Field(None, description="one of configs/profiles; none: chosen for you")
    state_dir: Folder = Field(Path(".state"), description="env file, journal, lock, build logs")
    configs_dir: Folder = Field(Path("configs"), description="profiles, and the locks of weights")
    secrets_dir: Folder = Field(Path("secrets"), description="keys and passwords, made on first up")
    weights_dir: Folder = Field(Path("weights"), description="where the model's files are kept")
    source_dir: Folder | None = Field(
        None, description="take the weights from this folder (USB disk, NFS), not the profile's"
    )
    hf_endpoint: Endpoint | None = Field(
        None, description="Hugging Face, or a mirror; HF_ENDPOINT counts too"
    )
    modelscope_endpoint: Endpoint | None = Field(
        None, description="ModelScope; MODELSCOPE_ENDPOINT counts too"
    )
    limit_rate: Rate | None = Field(
        None, description="download at most so many bytes a second, as in 20M"
    )
    streams: int = Field(4, ge=1, le=16, description="connections a download uses at once")
    gateway_port: Port = Field(8080, description="port of the API on 127.0.0.1")
    webui_port: Port = Field(3000, description="port of the chat page on 127.0.0.1")
    metrics: bool = Field(
        default=False, description="start Prometheus too; it stays until you say false"
    )
    prometheus_port: Port = Field(9090, description="port of Prometheus on 127.0.0.1")
    model_name: str = Field(
        "local-model",
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        description="the model's name for clients, the same whatever the profile",
    )
    admin_email: str = Field(
        "admin@appliance.local",
        pattern=r"^[^@\s'\"\\$#]+@[^@\s'\"\\$#]+\.[^@\s'\"\\$#]+$",
        description="log-in name of the chat page's administrator",
    )
    base_image: str = Field(
        "docker.io/library/debian:bookworm-slim",
        description="base of all images, where an image registry answers",
    )
    base_digest: str | None = Field(
        None, pattern=r"^sha256:[0-9a-f]{64}$", description="pins base_image by content"
    )
    debian_mirror: Mirror | None = Field(
        None, description="Debian mirror for images; none: this host's"
    )
    inference_cpus: Annotated[str, AfterValidator(_cpus_in_order)] = Field(
        "",
        pattern=r"^(\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*)?$",
        description="CPUs for the engine, as in 0-15",
    )
    inference_memory_bytes: int = Field(0, ge=0, description="the engine's limit; 0: computed")
    threads: int = Field(0, ge=0, description="engine threads; 0: computed from physical cores")
    memory_policy: Literal["", "local", "one node", "interleave", "replicate"] = Field(
        "", description="where weights lie on a host of several NUMA nodes; none: chosen for you"
    )
    gpus: str = Field(
        "", pattern=r"^(\d+(,\d+)*)?$", description="indices of the cards to plan for, as in 0,1"
    )
    placement: str = Field(
        "",
        pattern=r"^([a-z0-9][a-z0-9-]*)?$",
        description="of kt-legacy: a file of configs/placements or placements.d; none: the profile's",
    )
    gpu_experts: int = Field(0, ge=0, description="routed experts of each layer on the GPU")
    slots: int = Field(1, ge=1, le=64, description="requests the engine works on at once")
    context_tokens: int = Field(4096, ge=256, lt=2**31, description="context of each slot")
    system_message: Annotated[str, AfterValidator(_fits_an_env_file)] = Field(
        "", description="what the model is told before a chat that brings no system message"
    )
    max_tokens: int = Field(2048, ge=1, description="the longest reply")
    first_token_timeout_s: int = Field(600, ge=1, description="patience with a first token")
    idle_timeout_s: int = Field(120, ge=1, description="patience between two tokens")
    total_timeout_s: int = Field(3600, ge=1, description="the longest that a reply may take")
    load_timeout_s: int = Field(
        600,
        ge=1,
        description="patience with the engine's start; with one that tells how far it is, while nothing moves",
    )
    tries: int = Field(3, ge=1, le=10, description="attempts at a step before giving up")

    @model_validator(mode="after")
    def _a_port_each(self) -> Self:
        names = ("gateway_port", "webui_port", "prometheus_port")
        for first, second in combinations(names, 2):
            if getattr(self, first) == getattr(self, second):
                message = f"{first} and {second} are both {getattr(self, first)}"
                raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _context_of_all_slots(self) -> Self:
        if self.context_tokens * self.slots >= 2**31:  # engines count it in 32 bits
            message = f"context_tokens x slots is {self.context_tokens * self.slots}, over 2^31"
            raise ValueError(message)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Values from one place. `origins[name]` says where exactly, in the operator's words."""

    values: Mapping[str, object]
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Settings, and for each name the place that decided it."""

    settings: Settings
    origins: Mapping[str, str]


def settle(layers: Sequence[Layer]) -> Settled:
    """Lay the layers over the defaults, strongest first.

    Raises BadConfiguration for an unknown name or an unusable value, naming its origin.
    """
    values: dict[str, object] = {}
    origins: dict[str, str] = dict.fromkeys(Settings.model_fields, "default")
    for layer in reversed(layers):
        values |= layer.values
        origins |= layer.origins
    for name in values:
        if name not in Settings.model_fields:
            raise unknown_setting(name, origins[name])
    try:
        return Settled(settings=Settings.model_validate(values), origins=origins)
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0]) if problem["loc"] else ""
        where = f"{name} = {values.get(name)!r}, from {origins[name]}: " if name else ""
        meaning = f". {name}: {Settings.model_fields[name].description}" if name else ""
        raise BadConfiguration(
            "a setting can't be used",
            why=where + _WRONG.get(problem["type"], problem["msg"]).replace("Input ", "it "),
            next_step=f"correct it there, and try again{meaning}",
        ) from error


# By pydantic's types, where its own words are for programmers.
_WRONG = {
    "string_pattern_mismatch": "it is not written as it must be",
    "int_parsing": "it is no whole number",
    "bool_parsing": "it is neither true nor false",
}


def unknown_setting(name: str, origin: str) -> BadConfiguration:
    near = get_close_matches(name, Settings.model_fields, n=1)
    return BadConfiguration(
        f"there is no setting {name!r}",
        why=f"it comes from {origin}",
        next_step=f"did you mean {near[0]!r}?" if near else "python3 -m orchestrator up --help",
    )

"""What the container was told: its variables, and the lock and the key that two of them name."""

import os
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
)

from llamacpp_engine import DEFAULT_PORT
from llamacpp_engine.template import with_system_message
from placing.policy import Policy
from wire import Lock
from wire.gguf import NotGguf, read_header


class ConfigurationInvalid(Exception):
    """The container can't start as it was configured. `why` has one reason a line."""

    def __init__(
        self, what: str, *, why: tuple[str, ...], next_step: str, exit_code: int = 2
    ) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.next_step = next_step
        self.exit_code = exit_code


def _printable(text: str) -> str:
    # Not `isprintable`: to Python neither a Chinese indent is, nor what joins the parts of an emoji.
    if any(unicodedata.category(sign) in {"Cc", "Cs"} for sign in text if sign not in "\n\t"):
        message = "it may hold printable characters, line breaks and tabs only"
        raise ValueError(message)
    return text


def _parts(text: object) -> object:
    return text.split(",") if isinstance(text, str) else text


Nodes = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_parts)]
Cards = Annotated[tuple[str, ...], BeforeValidator(_parts)]


class Settings(BaseModel):
    """Field names are the names of the environment variables, in lower case.

    `memory_policy`: where the weights are to lie on a host of several NUMA nodes, and
    `memory_nodes`: on which of them, as in 0,1.
    `max_tokens`: how long a reply may get whose request does not say. One that asks for more gets
    more: who caps that is the gateway.
    `system_message`: what the model is told first when a request has no system message. Or empty.
    `llama_server`: the program of the image for GPUs. None: the engine is the wheel, on the CPU.
    `cuda_visible_devices`: the cards that the program is to use, as CUDA's own variable names them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    lock_file: Path
    weights_dir: Path
    model_file: str
    model_name: str = Field(min_length=1)
    api_key_file: Path
    context_tokens: int = Field(gt=0, lt=2**31)
    slots: int = Field(gt=0)
    max_tokens: int = Field(gt=0)
    threads: int = Field(ge=0)
    memory_policy: Policy = "local"
    memory_nodes: Nodes = ()
    listen_port: int = Field(default=DEFAULT_PORT, gt=0, le=65535)
    system_message: Annotated[str, AfterValidator(_printable)] = ""
    llama_server: Path | None = None
    cuda_visible_devices: Cards = ("0",)

    @property
    def worker_threads(self) -> int:
        return self.threads or len(os.sched_getaffinity(0))

    @property
    def total_context_tokens(self) -> int:
        """llama.cpp divides its context by its slots."""
        return self.context_tokens * self.slots


def read_settings(environment: Mapping[str, str]) -> Settings:
    values = {
        name: environment[name.upper()]
        for name in Settings.model_fields
        if environment.get(name.upper())
    }
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise ConfigurationInvalid(
            "the settings can't be used",
            why=_reasons(error),
            next_step="start this container through compose.yaml",
        ) from error


def read_lock(settings: Settings) -> Lock:
    path = settings.lock_file
    try:
        lock = Lock.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigurationInvalid(
            f"can't read the lock {path}",
            why=(str(error),),
            next_step="set LOCK_FILE to a readable file of configs/locks",
        ) from error
    except ValidationError as error:
        raise ConfigurationInvalid(
            f"{path} is not a lock",
            why=_reasons(error),
            next_step="restore this file from the release",
        ) from error
    locked = tuple(file.path for file in lock.files)
    if settings.model_file not in locked:
        raise ConfigurationInvalid(
            f"MODEL_FILE {settings.model_file} is not one of the lock's files",
            why=tuple(f"the lock has {path}" for path in locked),
            next_step="set MODEL_FILE to one of them: the first shard",
        )
    return lock


def read_key(settings: Settings) -> SecretStr:
    path = settings.api_key_file
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise _unusable_key(path, str(error)) from error
    if not key:
        raise _unusable_key(path, "it is empty")
    return SecretStr(key)


def read_chat_template(settings: Settings, model: Path) -> str | None:
    """With the default system message in front. None: there is none, the engine uses the model's."""
    if not settings.system_message:
        return None
    try:
        with model.open("rb") as file:
            template = read_header(file).chat_template
    except (OSError, NotGguf) as error:
        raise _no_template(model, str(error)) from error
    if template is None:
        raise _no_template(model, "it holds no chat template")
    return with_system_message(template, settings.system_message)


def _no_template(model: Path, why: str) -> ConfigurationInvalid:
    return ConfigurationInvalid(
        f"SYSTEM_MESSAGE can't be put before the chat template of {model}",
        why=(why,),
        next_step="take the system message out of the profile",
    )


def _unusable_key(path: Path, why: str) -> ConfigurationInvalid:
    return ConfigurationInvalid(
        f"the API key file {path} can't be used",
        why=(why,),
        next_step="python3 -m orchestrator up (it makes the secrets)",
    )


def _reasons(error: ValidationError) -> tuple[str, ...]:
    return tuple(
        f"{'.'.join(str(step) for step in found['loc']).upper() or 'the file'}: {found['msg']}"
        for found in error.errors(include_url=False, include_input=False)
    )

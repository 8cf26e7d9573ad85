"""What the container was told beside the engine's arguments, and the files that this names."""

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
    ValidationError,
)

from kt_legacy_engine import DEFAULT_PORT
from kt_legacy_engine.refusals import NOT_PROVEN, Refused
from placing.policy import Policy
from wire import Lock, discrepancies, read_receipt, stat_files


def _printable(text: str) -> str:
    # Not `isprintable`: to Python neither a Chinese indent is, nor what joins the parts of an emoji.
    if any(unicodedata.category(sign) in {"Cc", "Cs"} for sign in text if sign not in "\n\t"):
        message = "it may hold printable characters, line breaks and tabs only"
        raise ValueError(message)
    return text


def _numbers(text: object) -> object:
    return text.split(",") if isinstance(text, str) else text


Nodes = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_numbers)]


class Settings(BaseModel):
    """Field names are the names of the environment variables, in lower case.

    `memory_policy`: where the weights are to lie on a host of several NUMA nodes, and
    `memory_nodes`: on which of them, as in 0,1.
    `system_message`: what the model is told first when a request has no system message. Or empty.
    `kernels_dir`: one folder of CPU kernels for each variant. `marlin`: whether the image was built
    with it. `cache_dir`: what the engine compiles at run time; programs in it are run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    lock_file: Path
    weights_dir: Path
    model_name: str = Field(min_length=1)
    api_key_file: Path
    memory_policy: Policy = "local"
    memory_nodes: Nodes = ()
    listen_port: int = Field(default=DEFAULT_PORT, gt=0, le=65535)
    system_message: Annotated[str, AfterValidator(_printable)] = ""
    kernels_dir: Path = Path("/opt/kt/cpu")
    marlin: bool = True
    cache_dir: Path = Path("/cache")


def read_settings(environment: Mapping[str, str]) -> Settings:
    values = {
        name: environment[name.upper()]
        for name in Settings.model_fields
        if environment.get(name.upper())
    }
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise Refused(
            "the settings can't be used",
            why=_reasons(error),
            next_step="start this container through compose.yaml",
        ) from error


def read_lock(settings: Settings) -> Lock:
    path = settings.lock_file
    try:
        return Lock.model_validate_json(path.read_bytes())
    except OSError as error:
        raise Refused(
            f"can't read the lock {path}",
            why=(str(error),),
            next_step="set LOCK_FILE to a readable file of configs/locks",
        ) from error
    except ValidationError as error:
        raise Refused(
            f"{path} is not a lock",
            why=_reasons(error),
            next_step="restore this file from the release",
        ) from error


def proven_folder(settings: Settings, lock: Lock) -> Path:
    """The folder of the lock's files, once the receipt proves them."""
    folder = settings.weights_dir / lock.folder
    if doubts := tuple(discrepancies(lock, read_receipt(folder), stat_files(folder, lock))):
        raise Refused(
            f"the engine does not start: the weights in {folder} are not proven",
            why=tuple(str(doubt) for doubt in doubts),
            next_step="python3 -m orchestrator up (it verifies the weights and writes the receipt)",
            exit_code=NOT_PROVEN,
        )
    return folder


def shards(lock: Lock, folder: Path, gguf_path: Path) -> tuple[Path, ...]:
    """The locked GGUF files in `gguf_path`: anything else that lies there is not read."""
    wanted = folder / gguf_path
    paths = (folder / file.path for file in lock.files if file.path.endswith(".gguf"))
    if not (found := tuple(sorted(path for path in paths if path.parent == wanted))):
        raise Refused(
            f"there are no weights in {wanted}",
            why=tuple(f"the lock has {file.path}" for file in lock.files),
            next_step="set --gguf_path to the folder of one of these",
        )
    return found


def read_key(settings: Settings) -> str:
    path = settings.api_key_file
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise _unusable_key(path, str(error)) from error
    if not key:
        raise _unusable_key(path, "it is empty")
    return key


def check_cache(folder: Path) -> None:
    """Compiled kernels are written there and loaded as libraries."""
    why = ""
    if not os.access(folder, os.W_OK | os.X_OK):
        why = "it is missing or can't be written"
    elif os.statvfs(folder).f_flag & os.ST_NOEXEC:
        why = "it is mounted noexec: libraries in it can't be loaded"
    if why:
        raise Refused(
            f"the cache folder {folder} can't be used",
            why=(why,),
            next_step=f"mount a volume, or a tmpfs with the option exec, at {folder}",
        )


def _unusable_key(path: Path, why: str) -> Refused:
    return Refused(
        f"the API key file {path} can't be used",
        why=(why,),
        next_step="python3 -m orchestrator up (it makes the secrets)",
    )


def _reasons(error: ValidationError) -> tuple[str, ...]:
    return tuple(
        f"{'.'.join(str(step) for step in found['loc']).upper() or 'the file'}: {found['msg']}"
        for found in error.errors(include_url=False, include_input=False)
    )

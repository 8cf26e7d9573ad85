"""What the container was told beside the engine's arguments, and the files that this names."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from kt_sglang_engine import DEFAULT_PORT, DEFAULT_STATE_FILE
from kt_sglang_engine.refusals import NOT_PROVEN, Refused, Verdict
from placing.policy import Policy
from wire import Lock, discrepancies, read_receipt, stat_files

_COMPOSE = "start this container through compose.yaml"
_UP = "python3 -m orchestrator up"


def _numbers(text: object) -> object:
    return text.split(",") if isinstance(text, str) else text


Nodes = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_numbers)]


class Settings(BaseModel):
    """Field names are the names of the environment variables, in lower case.

    `memory_policy`: where memory is to come from on a host of several NUMA nodes, and
    `memory_nodes`: from which of them, as in 0,1.
    `cache_dir`: what the engine compiles at run time; programs in it are run. `state_file`: how far
    the load is, written for the healthcheck.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lock_file: Path
    weights_dir: Path
    api_key_file: Path
    memory_policy: Policy = "local"
    memory_nodes: Nodes = ()
    listen_port: int = Field(default=DEFAULT_PORT, gt=0, le=65535)
    cache_dir: Path = Path("/cache")
    state_file: Path = Path(DEFAULT_STATE_FILE)


def read_settings(environment: Mapping[str, str]) -> Settings:
    values = {
        name: environment[name.upper()]
        for name in Settings.model_fields
        if environment.get(name.upper())
    }
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise _refused("the settings can't be used", _reasons(error), _COMPOSE) from error


def read_lock(settings: Settings) -> Lock:
    path = settings.lock_file
    try:
        return Lock.model_validate_json(path.read_bytes())
    except OSError as error:
        next_step = "set LOCK_FILE to a readable file of configs/locks"
        raise _refused(f"can't read the lock {path}", (str(error),), next_step) from error
    except ValidationError as error:
        next_step = "restore this file from the release"
        raise _refused(f"{path} is not a lock", _reasons(error), next_step) from error


def proven_folder(settings: Settings, lock: Lock) -> Path:
    """The folder of the lock's files, once the receipt proves them."""
    folder = settings.weights_dir / lock.folder
    if doubts := tuple(discrepancies(lock, read_receipt(folder), stat_files(folder, lock))):
        raise _refused(
            f"the engine does not start: the weights in {folder} are not proven",
            tuple(str(doubt) for doubt in doubts),
            f"{_UP} (it verifies the weights and writes the receipt)",
            NOT_PROVEN,
        )
    return folder


def read_key(path: Path) -> str:
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise _unusable_key(path, str(error)) from error
    if not key:
        # Sglang would serve anybody then.
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
        next_step = f"mount a volume, or a tmpfs with the option exec, at {folder}"
        raise _refused(f"the cache folder {folder} can't be used", (why,), next_step)


def _unusable_key(path: Path, why: str) -> Refused:
    return _refused(
        f"the API key file {path} can't be used", (why,), f"{_UP} (it makes the secrets)"
    )


def _refused(what: str, why: tuple[str, ...], next_step: str, exit_code: int = 2) -> Refused:
    return Refused(Verdict(what=what, why=why, next_step=next_step, exit_code=exit_code))


def _reasons(error: ValidationError) -> tuple[str, ...]:
    return tuple(
        f"{'.'.join(str(step) for step in found['loc']).upper() or 'the file'}: {found['msg']}"
        for found in error.errors(include_url=False, include_input=False)
    )

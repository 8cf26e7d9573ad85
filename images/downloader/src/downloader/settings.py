"""What the container was told: three variables, and the lock that one of them names."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from downloader.errors import ConfigurationInvalid
from wire import Lock


class Settings(BaseModel):
    """Field names are the names of the environment variables, in lower case.

    Not a pydantic-settings model: its import alone takes longer than a whole run that has nothing to do.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lock_file: Path
    source_dir: Path
    weights_dir: Path


def read_settings(environment: Mapping[str, str]) -> Settings:
    names = [name.upper() for name in Settings.model_fields]
    if unset := [name for name in names if not environment.get(name)]:
        raise ConfigurationInvalid(
            "settings are missing",
            why=tuple(f"{name} is not set or empty" for name in unset),
            next_step="set LOCK_FILE to a lock, SOURCE_DIR to the folder to read from, "
            "WEIGHTS_DIR to the folder to publish in",
        )
    return Settings.model_validate({name.lower(): environment[name] for name in names})


def read_lock(path: Path) -> Lock:
    try:
        return Lock.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigurationInvalid(
            f"can't read the lock {path}",
            why=(str(error),),
            next_step="set LOCK_FILE to a readable file of configs/locks",
        ) from error
    except ValidationError as error:
        raise ConfigurationInvalid(
            f"{path} is not a lock",
            why=tuple(
                f"{'.'.join(str(step) for step in found['loc']) or 'the file'}: {found['msg']}"
                for found in error.errors(include_url=False, include_input=False)
            ),
            next_step="restore this file from the release, or make it again from the model's files",
        ) from error

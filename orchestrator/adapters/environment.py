"""Settings as layers: from flags, `ORCH_*` variables and `appliance.toml`."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.request import getproxies_environment

from pydantic_settings import BaseSettings, EnvSettingsSource

from orchestrator.core.errors import BadConfiguration
from orchestrator.core.settings import Layer, Settings, unknown_setting

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "ORCH_"
FILE_NAME = "appliance.toml"
ENDPOINTS = "endpoints.env"


# The two classes' configurations merge.
class _Reader(Settings, BaseSettings):  # type: ignore[misc]
    """Tells pydantic-settings which names there are; it is never instantiated."""


def read_layers(root: Path, flags: Mapping[str, object]) -> tuple[Layer, ...]:
    """All layers above the profile, strongest first. Raises BadConfiguration."""
    return (
        _from_flags(flags),
        _from_variables(),
        _from_file(root / FILE_NAME),
        _endpoints(root / "configs" / ENDPOINTS),
    )


def read_proxies() -> dict[str, str]:
    """Proxy URLs by scheme, and "no": hosts to reach without one. `*_proxy` and `*_PROXY`."""
    found = getproxies_environment()
    all_schemes = found.get("all")
    return {
        name: value
        for name in ("http", "https", "no")
        if (value := found.get(name) or (all_schemes if name != "no" else None))
    }


def read_language() -> Literal["en", "zh"]:
    """The one of ours that the user's locale asks for."""
    named = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return "zh" if next((name for name in named if name), "").startswith("zh") else "en"


def _from_flags(flags: Mapping[str, object]) -> Layer:
    given = {name: value for name, value in flags.items() if value is not None}
    return Layer(values=given, origins={name: f"--{name.replace('_', '-')}" for name in given})


def _from_variables() -> Layer:
    for variable in os.environ:
        name = variable[len(PREFIX) :].lower()
        if variable.startswith(PREFIX) and name not in Settings.model_fields:
            raise unknown_setting(name, f"the environment variable {variable}")
    values = EnvSettingsSource(_Reader, env_prefix=PREFIX, env_ignore_empty=True)()
    return Layer(values=values, origins={name: f"{PREFIX}{name.upper()}" for name in values})


def _endpoints(path: Path) -> Layer:
    """Public addresses of hubs: the variables that hubs' own tools know, else our one file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    written = dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for variable in ("HF_ENDPOINT", "MODELSCOPE_ENDPOINT"):
        if value := os.environ.get(variable) or written.get(variable):
            values[variable.lower()] = value
            origins[variable.lower()] = (
                variable if os.environ.get(variable) else f"configs/{ENDPOINTS}"
            )
    return Layer(values=values, origins=origins)


def _from_file(path: Path) -> Layer:
    try:
        # Editors of Windows may set a mark before the text.
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return Layer(values={}, origins={})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise BadConfiguration(
            f"{path.name} can't be read", why=str(error), next_step=f"correct {path}"
        ) from error
    return Layer(values=values, origins=dict.fromkeys(values, path.name))

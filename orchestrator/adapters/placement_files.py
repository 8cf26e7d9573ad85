"""Placements of kt-legacy on disk: those of the project, and the user's own beside them."""

import sys
from pathlib import Path

from pydantic import ValidationError

from orchestrator.core.errors import BadConfiguration
from orchestrator.core.kt_legacy.form import Form

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED, OWN = "placements", "placements.d"


def read_form(configs: Path, name: str) -> Form:
    """The user's own where both have one of this name."""
    paths = [configs / folder / f"{name}.toml" for folder in (OWN, SHIPPED)]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise BadConfiguration(
            f"there is no placement {name!r}",
            why=f"neither {paths[0]} nor {paths[1]} exists",
            next_step="set kt_legacy.rules in the profile to one of "
            + ", ".join(sorted({found.stem for found in _all(configs)})),
        )
    try:
        form = Form.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _unusable(path, str(error)) from error
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(map(str, found["loc"]))
        raise _unusable(path, f"{where}: {found['msg']}") from error
    if form.name != name:
        raise _unusable(path, f"it calls itself {form.name!r}; name it as its file")
    return form


def _all(configs: Path) -> list[Path]:
    return [path for folder in (OWN, SHIPPED) for path in (configs / folder).glob("*.toml")]


def _unusable(path: Path, why: str) -> BadConfiguration:
    return BadConfiguration(
        f"the placement {path.stem} can't be used", why=why, next_step=f"correct {path}"
    )

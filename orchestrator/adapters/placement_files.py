"""Placements of kt-legacy on disk: those of the project, and the user's own beside them."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.core.errors import BadConfiguration
from orchestrator.core.kt_legacy.form import Form

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED, OWN = "placements", "placements.d"


def folders(configs: Path, project: Path) -> tuple[Path, ...]:
    """One's own, and the shipped: the project's where `configs` is elsewhere and has none."""
    here = configs / SHIPPED
    return configs / OWN, here if here.is_dir() else project / "configs" / SHIPPED


def read_form(places: Sequence[Path], name: str) -> Form:
    """Raises BadConfiguration where there is none, there are two, or it can't be used."""
    paths = [folder / f"{name}.toml" for folder in places]
    found = [path for path in paths if path.is_file()]
    if not found:
        known = sorted({other.stem for folder in places for other in folder.glob("*.toml")})
        near = get_close_matches(name, known, n=1)
        raise BadConfiguration(
            f"there is no placement {name!r}",
            why=f"there is no {' and no '.join(map(str, paths))}",
            next_step=f"did you mean {near[0]}?"
            if near
            else f"--placement NAME, or kt_legacy.rules in the profile, one of {', '.join(known)}",
        )
    if len(found) > 1:
        raise BadConfiguration(
            f"there are two placements {name!r}",
            why=" and ".join(map(str, found)),
            next_step="give yours another name, of its file and in it",
        )
    (path,) = found
    try:
        form = Form.model_validate(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _unusable(path, str(error)) from error
    except ValidationError as error:
        raise _unusable(path, "; ".join(map(_told, error.errors()))) from error
    if form.name != name:
        raise _unusable(path, f"it calls itself {form.name!r}; name it as its file")
    return form


def _told(found: ErrorDetails) -> str:
    """Rules are counted from 1, as everywhere else."""
    match found["loc"]:
        case ("rules", int() as number, *rest):
            where = f"rule {number + 1}, {'.'.join(map(str, rest))}"
        case place:
            where = ".".join(map(str, place))
    given = found["input"]
    said = f", not {given!r}" if isinstance(given, str) else ""
    return f"{where}: {found['msg']}{said}"


def _unusable(path: Path, why: str) -> BadConfiguration:
    return BadConfiguration(
        f"the placement {path.stem} can't be used", why=why, next_step=f"correct {path}"
    )

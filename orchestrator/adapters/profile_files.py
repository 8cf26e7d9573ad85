"""Profiles on disk: those of the project, and the user's own beside them."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.core.errors import BadConfiguration
from orchestrator.core.profile import Profile
from orchestrator.core.schema import keys_at

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED, OWN = "profiles", "profiles.d"
TABLE = re.compile(r"^\s*(\[\[|\[)\s*([A-Za-z0-9_.-]+)\s*\]")
KEY = re.compile(r"^\s*([A-Za-z0-9_-]+)\s*=")


def known_profiles(configs: Path) -> tuple[str, ...]:
    return tuple(sorted({path.stem for path in profile_paths(configs)}))


def profile_paths(configs: Path) -> tuple[Path, ...]:
    return tuple(
        sorted(path for part in (SHIPPED, OWN) for path in (configs / part).glob("*.toml"))
    )


def profile_path(configs: Path, name: str) -> Path:
    """The one file of this name. Raises where there is none, and where there are two."""
    paths = [path for path in profile_paths(configs) if path.stem == name]
    if len(paths) > 1:
        raise BadConfiguration(
            f"two profiles are called {name!r}",
            why=f"{paths[0]} and {paths[1]}",
            next_step=f"rename yours, the file and the `name` in it: {_own(paths)}",
        )
    if not paths:
        known = known_profiles(configs)
        near = get_close_matches(name, known, n=1)
        raise BadConfiguration(
            f"there is no profile {name!r}",
            why=f"{configs / SHIPPED} and {OWN} hold {', '.join(known) or 'none'}",
            next_step=f"did you mean --profile {near[0]}?"
            if near
            else "python3 -m orchestrator profiles list",
        )
    return paths[0]


def _own(paths: Sequence[Path]) -> Path:
    return next((path for path in paths if path.parent.name == OWN), paths[-1])


def read_profile(configs: Path, name: str) -> Profile:
    return _read(profile_path(configs, name))


def read_all(configs: Path) -> tuple[Profile, ...]:
    """Every profile, by name. Raises for the first that can't be used."""
    return tuple(read_profile(configs, name) for name in known_profiles(configs))


def _read(path: Path) -> Profile:
    found = _load(path)
    if isinstance(found, Profile):
        return found
    others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise BadConfiguration(
        f"the profile {path.stem} can't be used",
        why=found[0] + others,
        next_step=f"correct it; all that is wrong: python3 -m orchestrator profiles validate {path}",
    )


def profile_problems(path: Path) -> tuple[str, ...]:
    """Everything that is wrong with one file, each with its line where that can be told."""
    found = _load(path)
    return () if isinstance(found, Profile) else found


def _load(path: Path) -> Profile | tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return (f"{path}: can't be read: {error}",)
    try:
        profile = Profile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        return (f"{path}: {error}",)
    except ValidationError as error:
        lines = _lines_of(text)
        return tuple(_in_words(path, lines, problem) for problem in error.errors())
    if profile.name != path.stem:
        line = _lines_of(text).get(("name",), 1)
        return (f"{path}:{line}: name: it calls itself {profile.name!r}; name it as its file",)
    return profile


Where = tuple[str | int, ...]


def _in_words(path: Path, lines: Mapping[Where, int], problem: ErrorDetails) -> str:
    place = _without_kind(problem["loc"])
    line = next((lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines), None)
    where = f"{path}:{line}" if line else str(path)
    field = ".".join(map(str, place))
    return (
        f"{where}: {field}: {_what(problem, place)}"
        if field
        else f"{where}: {_what(problem, place)}"
    )


def _without_kind(place: Where) -> Where:
    """Pydantic puts a source's kind into the place of its fields; the file has no such level."""
    if len(place) > 2 and place[0] == "sources":  # noqa: PLR2004 - sources, number, kind
        return (*place[:2], *place[3:])
    return place


def _what(problem: ErrorDetails, place: Where) -> str:
    if problem["type"] == "extra_forbidden":
        near = get_close_matches(str(place[-1]), sorted(keys_at(place[:-1])), n=1)
        return (
            f"there is no such key; did you mean {near[0]!r}?" if near else "there is no such key"
        )
    if problem["type"] == "missing":
        return "it is missing"
    return problem["msg"].removeprefix("Value error, ")


def _lines_of(text: str) -> dict[Where, int]:
    """Place of every table and key -> its line. tomllib does not tell."""
    return dict(_places(text))


def _places(text: str) -> Iterator[tuple[Where, int]]:
    table: Where = ()
    counts: dict[str, int] = {}
    in_string = False
    for number, line in enumerate(text.splitlines(), start=1):
        if not in_string:
            if header := TABLE.match(line):
                table = _table(header[2], counts, many=header[1] == "[[")
                yield table, number
            elif key := KEY.match(line):
                yield (*table, key[1]), number
        if line.count('"""') % 2:
            in_string = not in_string


def _table(name: str, counts: dict[str, int], *, many: bool) -> Where:
    steps: Where = tuple(name.split("."))
    if not many:
        return steps
    counts[name] = counts.get(name, -1) + 1
    return (*steps, counts[name])

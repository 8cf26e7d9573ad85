"""Profiles on disk: those of the project, and the user's own beside them."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError

from orchestrator.core.errors import BadConfiguration
from orchestrator.core.mistakes import Mistake, Place, mistakes
from orchestrator.core.profile import Profile

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
        near = get_close_matches(name, known, n=1) or [n for n in known if n.startswith(name)]
        raise BadConfiguration(
            f"there is no profile {name!r}",
            why=f"{configs / SHIPPED} and {OWN} hold {', '.join(known) or 'none'}",
            next_step=f"did you mean {near[0]}?"
            if near
            else "python3 -m orchestrator profiles list",
        )
    return paths[0]


def _own(paths: Sequence[Path]) -> Path:
    return next((path for path in paths if path.parent.name == OWN), paths[-1])


def read_profile(configs: Path, name: str) -> Profile:
    return _read(profile_path(configs, name))


def read_all(configs: Path) -> tuple[Profile, ...]:
    """Every profile, by name, without those that the user's own files make unusable: see `left_out`.

    Raises for the first shipped one that can't be used, and where there is none at all.
    """
    if not profile_paths(configs):
        raise BadConfiguration(
            "there are no profiles",
            why=f"{configs / SHIPPED} and {OWN} hold none",
            next_step="see that configs_dir names the folder that profiles/ lies in",
        )
    without = left_out(configs)
    names = (name for name in known_profiles(configs) if name not in without)
    return tuple(read_profile(configs, name) for name in names)


def left_out(configs: Path) -> Mapping[str, str]:
    """Name of each of the user's files that can't be used -> the file and the first thing wrong."""
    own = sorted((configs / OWN).glob("*.toml"))
    found = {path.stem: problems[0] for path in own if (problems := profile_problems(path))}
    shipped = {path.stem: path for path in (configs / SHIPPED).glob("*.toml")}
    shadows = {
        path.stem: f"{path}: {shipped[path.stem]} has this name too; rename yours"
        for path in own
        if path.stem in shipped
    }
    return shadows | found


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
        # Editors of Windows may set a mark before the text.
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        return (f"{path}: can't be read: {error}",)
    try:
        profile = Profile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        return (f"{path}: {error}",)
    except ValidationError as error:
        return _in_words(path, _lines_of(text), mistakes(error.errors()))
    if profile.name != path.stem:
        other = Mistake(("name",), f"it calls itself {profile.name!r}; name it as its file")
        return _in_words(path, _lines_of(text), (other,))
    return profile


def _in_words(path: Path, lines: Mapping[Place, int], found: Iterable[Mistake]) -> tuple[str, ...]:
    """In the order of the file's lines; first what has none."""

    def line(mistake: Mistake) -> int:
        steps = (mistake.place[:n] for n in range(len(mistake.place), 0, -1))
        return next((lines[step] for step in steps if step in lines), 0)

    return tuple(
        f"{path}:{number}: {mistake}" if number else f"{path}: {mistake}"
        for number, mistake in sorted(
            ((line(mistake), mistake) for mistake in found), key=lambda pair: pair[0]
        )
    )


def _lines_of(text: str) -> dict[Place, int]:
    """Place of every table and key -> its line. tomllib does not tell."""
    return dict(_places(text))


def _places(text: str) -> Iterator[tuple[Place, int]]:
    table: Place = ()
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


def _table(name: str, counts: dict[str, int], *, many: bool) -> Place:
    steps: Place = tuple(name.split("."))
    if not many:
        return steps
    counts[name] = counts.get(name, -1) + 1
    return (*steps, counts[name])

"""Facts in a file, to be judged on another host; or the outputs that somebody collected there."""

import getpass
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath, PurePosixPath

from pydantic import ValidationError

from orchestrator.core.errors import BadConfiguration
from orchestrator.core.facts import Disk, HostFacts
from orchestrator.core.probes.captures import (
    NAMES,
    command_of,
    facts_of,
    is_known,
    is_understood,
)
from orchestrator.core.probes.disk import for_weights
from orchestrator.core.probes.pasted import text_of

HOMES = ("/home", "/Users")
HIDDEN = "..."
SAVE = "python3 -m orchestrator doctor --save-facts FILE, on that host"


def save_facts(path: Path, facts: HostFacts) -> None:
    """What may be shown to others: no name of a user or of the host."""
    try:
        path.write_text(_shareable(facts).model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadConfiguration(
            f"the facts can't be saved in {path}",
            why=error.strerror or str(error),
            next_step="name a file in a folder that you may write to",
        ) from error


@dataclass(frozen=True, slots=True)
class Loaded:
    """`warnings`: what was there and says nothing, each in one line."""

    facts: HostFacts
    warnings: tuple[str, ...] = ()


def load_facts(path: Path, weights_dir: PurePath) -> Loaded:
    """A file that `save_facts` wrote, or a folder of captured outputs, one file each.

    `weights_dir`: of several disks the one that holds it counts.
    """
    loaded = _of_folder(path) if path.is_dir() else Loaded(_of_file(path))
    if not loaded.facts.disks:
        return loaded
    disk = for_weights(loaded.facts.disks, weights_dir)
    return replace(loaded, facts=loaded.facts.model_copy(update={"disk": disk}))


def _of_file(path: Path) -> HostFacts:
    try:
        return HostFacts.model_validate_json(path.read_bytes())
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise _unusable(path, f"{where}: {problem['msg']}".removeprefix(": ")) from error


def _of_folder(folder: Path) -> Loaded:
    try:
        names = sorted(file.name for file in folder.iterdir() if file.is_file())
        texts = {name: text_of((folder / name).read_bytes()) for name in names if is_known(name)}
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from error
    if not texts:
        raise _unusable(
            folder, f"no file in it has a known name; with or without .txt: {', '.join(NAMES)}"
        )
    return Loaded(facts_of(texts), tuple(_warnings(texts, names)))


def _warnings(texts: Mapping[str, str], names: Iterable[str]) -> Iterator[str]:
    for name, text in texts.items():
        if not is_understood(name, text):
            yield (
                f"{name}: nothing in it was understood; it is to hold what "
                f"`{command_of(name)}` prints"
            )
    others = [name for name in names if name not in texts and not name.startswith(".")]
    if others:
        yield f"not read, its name is not known: {', '.join(others)}"


def _unusable(path: Path, why: str) -> BadConfiguration:
    return BadConfiguration(f"{path} holds no facts of a host", why=why, next_step=SAVE)


def _shareable(facts: HostFacts) -> HostFacts:
    disk = facts.disk and _without_names(facts.disk)
    disks = tuple(map(_without_names, facts.disks))
    return facts.model_copy(update={"disk": disk, "disks": disks})


def _without_names(disk: Disk) -> Disk:
    return disk.model_copy(update={"path": _shown(PurePosixPath(disk.path))})


def _shown(path: PurePosixPath) -> str:
    """Without whose folder it is."""
    homes = [
        *_own_home(),
        *(above for above in (path, *path.parents) if str(above.parent) in HOMES),
    ]
    home = next((home for home in homes if path.is_relative_to(home)), None)
    if home is not None:
        path = PurePosixPath("~", path.relative_to(home))
    names = _names()
    return str(PurePosixPath(*(HIDDEN if part in names else part for part in path.parts)))


def _own_home() -> list[PurePosixPath]:
    try:
        return [PurePosixPath(Path.home())]
    except RuntimeError:  # no one knows of any
        return []


def _names() -> set[str]:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user that no directory knows
        user = ""
    host = socket.gethostname()
    return {user, host, host.partition(".")[0]} - {""}

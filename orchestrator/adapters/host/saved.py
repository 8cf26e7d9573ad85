"""Facts in a file, to be judged on another host; or the outputs that somebody collected there."""

import getpass
import socket
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from orchestrator.core.errors import BadConfiguration
from orchestrator.core.facts import HostFacts
from orchestrator.core.probes.captures import facts_of, known_captures

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


def load_facts(path: Path) -> HostFacts:
    """A file that `save_facts` wrote, or a folder of captured outputs, one file each."""
    if path.is_dir():
        return _of_folder(path)
    try:
        return HostFacts.model_validate_json(path.read_bytes())
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise _unusable(path, f"{where}: {problem['msg']}".removeprefix(": ")) from error


def _of_folder(folder: Path) -> HostFacts:
    try:
        names = [file.name for file in folder.iterdir() if file.is_file()]
        texts = {
            name: (folder / name).read_text(encoding="utf-8", errors="replace")
            for name in names
            if known_captures({name: ""})
        }
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from error
    if not texts:
        raise _unusable(folder, "no file in it has a known name, such as lscpu.txt or meminfo.txt")
    return facts_of(texts)


def _unusable(path: Path, why: str) -> BadConfiguration:
    return BadConfiguration(f"{path} holds no facts of a host", why=why, next_step=SAVE)


def _shareable(facts: HostFacts) -> HostFacts:
    if facts.disk is None:
        return facts
    shown = facts.disk.model_copy(update={"path": _shown(PurePosixPath(facts.disk.path))})
    return facts.model_copy(update={"disk": shown})


def _shown(path: PurePosixPath) -> str:
    """Without whose folder it is."""
    homes = [*_own_home(), *(above for above in path.parents if str(above.parent) in HOMES)]
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

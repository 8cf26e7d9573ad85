"""Tools of this host, asked in English and with bounded patience."""

import logging
import os
import shutil
import subprocess
from dataclasses import dataclass

log = logging.getLogger(__name__)

WSL_TOOLS = "/usr/lib/wsl/lib"  # where Windows puts nvidia-smi, which no PATH need name


@dataclass(frozen=True, slots=True)
class Answer:
    """What it printed, and whether it ended well. `errors`: on its other output."""

    text: str
    ok: bool
    errors: str = ""

    @property
    def all(self) -> str:
        return f"{self.text}\n{self.errors}"


def is_there(tool: str) -> bool:
    return _path_of(tool) is not None


def ask(*words: str, within_s: float) -> Answer | None:
    """None where there is no such tool, or it had no answer in time."""
    tool = _path_of(words[0])
    if tool is None:
        return None
    log.debug("%s", " ".join(words))
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            [tool, *words[1:]],
            capture_output=True,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            timeout=within_s,
        )
    except (OSError, subprocess.SubprocessError) as trouble:
        log.debug("%s: %s", words[0], trouble)
        return None
    return Answer(
        done.stdout.decode(errors="replace"),
        done.returncode == 0,
        done.stderr.decode(errors="replace"),
    )


def _path_of(tool: str) -> str | None:
    return shutil.which(tool) or shutil.which(tool, path=WSL_TOOLS)

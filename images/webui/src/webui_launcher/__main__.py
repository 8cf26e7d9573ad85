"""The container's entry: from compose's variables and secrets to Open-WebUI in the same process."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from webui_launcher.environment import environment
from webui_launcher.settings import (
    DATA,
    PORT,
    ConfigurationError,
    read_secrets,
    require_writable,
    settings_from,
)

EVERY_INTERFACE = "0.0.0.0"  # noqa: S104 - the container's: compose publishes one port, on loopback

Execve = Callable[[str, list[str], Mapping[str, str]], object]


def launch(environ: Mapping[str, str], program: Path, data: Path, execve: Execve) -> int:
    try:
        settings = settings_from(environ)
        secrets = read_secrets(settings)
        require_writable(data)
    except ConfigurationError as error:
        for objection in error.objections:
            sys.stderr.write(f"error: the page can't start: {objection}\n")
        return 2
    arguments = [program.name, "serve", "--host", EVERY_INTERFACE, "--port", str(PORT)]
    # The same process: it gets the signals, and the secrets are in nobody else's environment.
    execve(str(program), arguments, environment(settings, secrets, environ))
    return 0


if __name__ == "__main__":
    sys.exit(launch(os.environ, Path(sys.executable).with_name("open-webui"), DATA, os.execve))

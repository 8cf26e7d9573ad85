"""Changes to the stack, through Docker Compose."""

import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from python_on_whales import DockerClient, DockerException

from orchestrator.core.docker_errors import DOCKER_HOST, no_answer
from orchestrator.core.errors import ActionFailed, DockerUnavailable
from orchestrator.core.plan import COMPOSE_FILES, METRICS
from orchestrator.core.render import from_env_file

log = logging.getLogger(__name__)


def compose_files(root: Path, env_file: Path) -> list[Path]:
    """As Compose itself finds them: those that COMPOSE_FILE in the env file names, else its default."""
    named = from_env_file(env_file.read_text(encoding="utf-8")).get(COMPOSE_FILES, "compose.yaml")
    return [root / name for name in named.split(":")]


class ComposeStack:
    """One Compose project, described by `compose.yaml` in `root` and an env file."""

    def __init__(self, root: Path, env_file: Path, project: str) -> None:
        _require("buildx", "compose")
        client = partial(
            DockerClient,
            compose_files=list(compose_files(root, env_file)),
            compose_env_files=[env_file],
            compose_project_name=project,
        )
        self._docker = client()
        # Compose leaves a volume where no service that is on uses it, and metrics may be off by now.
        self._with_all = client(compose_profiles=[METRICS])

    def start(self, service: str) -> None:
        """Make the service's container what the configuration says, and start it alone.

        Not `up --no-deps`: it leaves the dependencies out of the container's configuration hash, so
        that a plain `docker compose up` would take every container for outdated.
        """
        with self._compose_errors():
            self._docker.compose.create([service])
            self._docker.container.start(self._docker.compose.ps([service], all=True))

    def stop(self, service: str) -> None:
        with self._compose_errors():
            self._docker.compose.stop([service])

    def remove(self, service: str) -> None:
        with self._compose_errors():
            self._docker.compose.rm([service], stop=True)

    def run_job(self, service: str, *words: str) -> int:
        """Run the service once more beside its own container, on this terminal; its exit code."""
        command = [*self._docker.compose.docker_compose_cmd, "run", "--rm", "--no-deps", "-T"]
        command += [service, *words]
        log.debug("%s", " ".join(map(str, command)))
        done = subprocess.run(  # noqa: S603 - our own words
            [str(word) for word in command], check=False, stdin=subprocess.DEVNULL
        )
        return done.returncode

    def down(self, *, volumes: bool) -> None:
        with self._compose_errors():
            self._with_all.compose.down(volumes=volumes, remove_orphans=True, quiet=True)

    def is_current(self, service: str) -> bool:
        wanted = self._run("config", "--hash", service).split()
        with self._compose_errors():
            made = self._docker.compose.ps([service], all=True)
            labels = [container.config.labels or {} for container in made]
        hashes = [label.get("com.docker.compose.config-hash") for label in labels]
        return hashes == wanted[-1:]

    def follow_logs(self, services: list[str], *, follow: bool, tail: str | None) -> Iterator[str]:
        """Log lines of the services, all when none is named, as they come."""
        with self._compose_errors():
            for _, chunk in self._docker.compose.logs(
                services, tail=tail, follow=follow, stream=True
            ):
                # Compose clears the terminal's line before each of its own, terminal or not.
                yield chunk.decode(errors="replace").replace("\x1b[2K", "")

    def _run(self, *verb: str) -> str:
        # Verbs that python-on-whales does not offer with these options.
        command = [str(word) for word in (*self._docker.compose.docker_compose_cmd, *verb)]
        log.debug("%s", " ".join(command))
        done = subprocess.run(  # noqa: S603 - our own words
            command, capture_output=True, text=True, check=False
        )
        if done.returncode:
            self._check_daemon()
            raise ActionFailed(_last_line(done.stderr), done.stderr)
        return done.stdout

    @contextmanager
    def _compose_errors(self) -> Iterator[None]:
        try:
            yield
        except DockerException as error:
            self._check_daemon()
            said = error.stderr or ""
            raise ActionFailed(_last_line(said), said) from error

    def _check_daemon(self) -> None:
        try:
            self._docker.compose.version()
            self._docker.info()
        except DockerException as error:
            named = os.environ.get(DOCKER_HOST, "")
            raise no_answer(_last_line(error.stderr or ""), named) from error


def _require(*plugins: str) -> None:
    """Raise DockerUnavailable where Docker's command line, or one of these plugins, is missing."""
    next_step = "./install.sh --no-up installs it, then: python3 -m orchestrator up"
    for plugin in plugins:
        command = ["docker", plugin, "version"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        except FileNotFoundError as error:
            raise DockerUnavailable(
                "there is no docker command", why=str(error), next_step=next_step
            ) from error
        if done.returncode:
            raise DockerUnavailable(
                f"Docker's plugin {plugin} is missing",
                why=f"{' '.join(command)}: {(done.stderr.splitlines() or ['it failed'])[0]}",
                next_step=next_step,
            )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"

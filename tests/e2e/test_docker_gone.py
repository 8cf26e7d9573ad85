"""Without Docker or Compose every command ends with 10, says why, and what to do."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from e2e.scenario import PARIS, Appliance

COMMANDS = ("up", "plan", "status", "logs", "down")
DOCKER_SOCKET = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
# Nobody waits longer for the answer to a typed command without looking for its fault elsewhere.
ENDS_WITHIN_S = 90.0


class Door:
    """A Unix socket that leads to Docker's own, until it is shut.

    `host` is what DOCKER_HOST has to be to go through it.
    """

    def __init__(self, path: Path) -> None:
        self.host = f"unix://{path}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._open: list[socket.socket] = []
        self._threads = [Thread(target=self._let_in)]
        self._threads[0].start()

    def shut(self) -> None:
        """Cut every connection and take no new one, as a daemon that is killed does."""
        for end in (self._listener, *self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join()
        for end in (self._listener, *self._open):
            end.close()

    def _let_in(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # shut
                return
            docker = socket.socket(socket.AF_UNIX)
            self._open += [client, docker]
            docker.connect(DOCKER_SOCKET)
            for source, sink in ((client, docker), (docker, client)):
                self._threads.append(Thread(target=pump, args=(source, sink)))
                self._threads[-1].start()


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(65536):
            sink.sendall(chunk)
    with suppress(OSError):  # one direction may end before the other
        sink.shutdown(socket.SHUT_WR)


def nobody(path: Path) -> Iterator[None]:
    yield


def a_file_that_nobody_listens_on(path: Path) -> Iterator[None]:
    with closing(socket.socket(socket.AF_UNIX)) as left_behind:
        left_behind.bind(str(path))
    yield


def one_that_hangs_up(path: Path) -> Iterator[None]:
    def hang_up() -> None:
        with suppress(OSError):
            while True:
                listener.accept()[0].close()

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    thread = Thread(target=hang_up)
    thread.start()
    yield
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    listener.close()


def one_that_never_answers(path: Path) -> Iterator[None]:
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(path))
        listener.listen(64)  # the kernel accepts; nobody reads
        yield


def known_to_be_up(stack: Appliance) -> None:
    """`logs` and `down` have nothing to do before there is an env file."""
    stack.env_file.parent.mkdir(parents=True)
    stack.env_file.touch()


def explained(done: subprocess.CompletedProcess[str]) -> str:
    """The error as it was told: what, why, what next; and no bug's traceback."""
    assert done.returncode == 10, done.stderr
    assert "Traceback" not in done.stderr
    _, _, error = done.stderr.rpartition("error: ")
    what, *lines = error.splitlines()
    assert what
    why, next_step = (i for i, line in enumerate(lines) if not line.startswith(" " * 8))
    assert why == 0
    assert lines[why].startswith("  why:  ")
    assert lines[why].removeprefix("  why:  ").strip()
    assert lines[next_step].startswith("  next: ")
    assert lines[next_step].removeprefix("  next: ").strip()
    return error


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "behind",
    [
        nobody,
        pytest.param(a_file_that_nobody_listens_on, marks=pytest.mark.long),
        pytest.param(one_that_hangs_up, marks=pytest.mark.long),
    ],
)
def test_without_docker_every_command_says_so(
    new_appliance: Callable[..., Appliance],
    tmp_path: Path,
    behind: Callable[[Path], Iterator[None]],
    command: str,
) -> None:
    stack = new_appliance()
    known_to_be_up(stack)
    with contextmanager(behind)(tmp_path / "docker.sock"):
        done = stack.run(command, DOCKER_HOST=f"unix://{tmp_path}/docker.sock")
    assert "Docker does not answer" in explained(done)


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_a_docker_that_never_answers_is_not_waited_for_without_end(
    new_appliance: Callable[..., Appliance], tmp_path: Path, command: str
) -> None:
    stack = new_appliance()
    known_to_be_up(stack)
    asked = time.monotonic()
    with contextmanager(one_that_never_answers)(tmp_path / "docker.sock"):
        done = stack.run(command, DOCKER_HOST=f"unix://{tmp_path}/docker.sock")
    assert time.monotonic() - asked < ENDS_WITHIN_S
    assert "Docker does not answer" in explained(done)


@pytest.mark.parametrize(
    ("event", "step"),
    [
        ("StepStarted", "weights"),
        pytest.param("GateChecked", "weights", marks=pytest.mark.long),
        pytest.param("StepStarted", "inference", marks=pytest.mark.long),
        pytest.param("GateChecked", "inference", marks=pytest.mark.long),
        pytest.param("StepStarted", "gateway", marks=pytest.mark.long),
        pytest.param("StepKept", "first token", marks=pytest.mark.long),
        pytest.param("GateChecked", "webui", marks=pytest.mark.long),
    ],
)
def test_docker_dying_in_the_middle_ends_the_run_and_a_later_one_comes_up(
    new_appliance: Callable[..., Appliance],
    tmp_path: Path,
    event: str,
    step: str,
    request: pytest.FixtureRequest,
) -> None:
    stack = new_appliance()
    door = Door(tmp_path / "docker.sock")
    try:
        up = stack.start("up", "--json", DOCKER_HOST=door.host)
        assert up.stdout is not None
        events = map(json.loads, up.stdout)
        assert any(told["event"] == event and told["step"] == step for told in events)
    finally:
        door.shut()
    out, err = up.communicate(timeout=120)

    explained(subprocess.CompletedProcess(up.args, up.returncode, out, err))
    assert stack.journal()[-1]["exit_code"] == 10

    if request.node.get_closest_marker("long"):
        stack.up()
        assert stack.ask().json()["choices"][0]["message"]["content"] == PARIS


def a_path_with(folder: Path, docker: str) -> str:
    """A PATH whose `docker` is this script, with Docker's own behind it as $DOCKER."""
    folder.mkdir()
    script = folder / "docker"
    script.write_text(f'#!/bin/sh\nDOCKER="{shutil.which("docker")}"\n{docker}\n')
    script.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


THAT_USE_THE_CLIENT = [
    "up",
    pytest.param("down", marks=pytest.mark.long),
    pytest.param("logs", marks=pytest.mark.long),
]
WITHOUT_COMPOSE = """
if [ "$1" = compose ]; then
    echo "unknown flag: --file\n\nUsage:  docker [OPTIONS] COMMAND [ARG...]\n" >&2
    echo "Run 'docker --help' for more information" >&2
    exit 125
fi
exec "$DOCKER" "$@"
"""


@pytest.mark.parametrize("command", THAT_USE_THE_CLIENT)
def test_without_the_compose_plugin_the_error_names_it(
    new_appliance: Callable[..., Appliance], tmp_path: Path, command: str
) -> None:
    stack = new_appliance()
    known_to_be_up(stack)
    path = a_path_with(tmp_path / "bin", WITHOUT_COMPOSE)
    error = explained(stack.run(command, PATH=path))
    assert "compose" in error.lower()
    assert "./install.sh" in error
    assert "Docker does not answer" not in error  # it does


@pytest.mark.parametrize("command", THAT_USE_THE_CLIENT)
def test_without_docker_s_client_the_error_names_it(
    new_appliance: Callable[..., Appliance], tmp_path: Path, command: str
) -> None:
    stack = new_appliance()
    known_to_be_up(stack)
    empty = tmp_path / "bin"
    empty.mkdir()
    error = explained(stack.run(command, PATH=str(empty)))
    assert "docker" in error
    assert "./install.sh" in error

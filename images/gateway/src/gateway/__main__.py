"""Runs the gateway until SIGTERM, lets running answers finish for a while, and exits 0."""

import asyncio
import gc
import resource
import socket
import sys
import time
from functools import partial
from types import FrameType

import uvicorn
from pydantic import ValidationError

from gateway.admission.line import Line
from gateway.app import create_app
from gateway.door import Door
from gateway.logs import start_logging
from gateway.protocol import CarefulProtocol
from gateway.reloaded import FileUnusableError
from gateway.settings import Settings

CONFIGURATION = 2
LAST_WORDS_S = 1
OWN_FILES = 512
"""Connections to the engine, scrapers, the control socket, files."""


class TooFewFilesError(Exception):
    """The system allows fewer open files than the configured connections need."""


class Server(uvicorn.Server):
    """uvicorn, except that it drains with its door open, and that a drained stop is exit code 0.

    uvicorn closes its listener at once: who comes then finds nobody, where a 503 says when to come
    again. It also raises a signal that it has obeyed again at the end, and that is no exit code 0.
    """

    def __init__(self, config: uvicorn.Config, *, drain_s: float) -> None:
        super().__init__(config)
        self._drain_s = drain_s
        self._asked_to_stop = False
        self._drained_at_s: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as uvicorn has it
        # Asked twice, somebody is in a hurry.
        self.force_exit = self.should_exit = self._asked_to_stop
        self._asked_to_stop = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if self._asked_to_stop and self._is_drained():
            self.should_exit = True
        return await super().on_tick(counter)

    def _is_drained(self) -> bool:
        line: Line = self.lifespan.state["line"]
        if self._drained_at_s is None:
            self._drained_at_s = time.monotonic() + self._drain_s
            line.drain()
        now = line.snapshot()
        return not now.running + sum(now.queued.values()) or time.monotonic() >= self._drained_at_s

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await self._await_tasks()
        # uvloop does not close while a transport still has bytes that its client will not take.
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await self._await_tasks()

    async def _await_tasks(self) -> None:
        if tasks := set(self.server_state.tasks):
            await asyncio.wait(tasks, timeout=LAST_WORDS_S)


def make_room_for(connections: int) -> None:
    """Raises the soft limit on open files to what so many connections may need."""
    needed = connections + OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        message = (
            f"{needed} open files are needed, for MAX_CONNECTIONS and MAX_STRANGERS, and {hard} allowed: "
            "lower those, or raise the limit (ulimits: nofile in compose.yaml)"
        )
        raise TooFewFilesError(message)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def main() -> int:
    start_logging()
    try:
        settings = Settings()  # the fields come from the environment
        make_room_for(settings.max_connections + settings.max_strangers)
        door = Door(
            most=settings.max_connections,
            most_strangers=settings.max_strangers,
            most_of_key=settings.max_connections_per_key,
            now_s=time.monotonic,
        )
        app = create_app(settings, door)
    except (ValidationError, FileUnusableError, TooFewFilesError) as error:
        said = " ".join(str(error).split())
        sys.stderr.write(f"error: the gateway's configuration can't be used: {said}\n")
        return CONFIGURATION
    config = uvicorn.Config(
        app,
        host=settings.listen_host,
        port=settings.listen_port,
        # A class in all but name: uvicorn calls it for each connection.
        http=partial(CarefulProtocol, header_timeout_s=settings.header_timeout_s, door=door),  # type: ignore[arg-type]
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        # Longer than clients keep an idle connection: none sends a request into a closing one.
        timeout_keep_alive=75,
        # The line is empty by then, or out of time.
        timeout_graceful_shutdown=LAST_WORDS_S,
    )
    # What is here by now stays: no collection has to go through it again.
    gc.collect()
    gc.freeze()
    # Of what comes and goes with a request nearly nothing is in a circle.
    gc.set_threshold(20_000)
    Server(config, drain_s=settings.drain_s).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())

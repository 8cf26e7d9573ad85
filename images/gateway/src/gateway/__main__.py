"""Runs the gateway until SIGTERM, lets running answers finish for a while, and exits 0."""

import asyncio
import logging
import socket
import sys
from types import FrameType

import uvicorn
from pydantic import ValidationError

from gateway.app import create_app
from gateway.reloaded import FileUnusableError
from gateway.settings import Settings

CONFIGURATION = 2
LAST_WORDS_S = 1.0


class Server(uvicorn.Server):
    """uvicorn, except that a drained stop is exit code 0, also with clients that do not read.

    uvicorn raises a signal that it has obeyed again at the end, and that is no exit code 0.
    """

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as uvicorn has it
        # Asked twice, somebody is in a hurry.
        self.force_exit = self.should_exit
        self.should_exit = True

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


def main() -> int:
    logging.basicConfig(
        level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(name)s: %(message)s"
    )
    try:
        settings = Settings()  # the fields come from the environment
        app = create_app(settings)
    except (ValidationError, FileUnusableError) as error:
        said = " ".join(str(error).split())
        sys.stderr.write(f"error: the gateway's configuration can't be used: {said}\n")
        return CONFIGURATION
    config = uvicorn.Config(
        app,
        host=settings.listen_host,
        port=settings.listen_port,
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        # Longer than clients keep an idle connection: none sends a request into a closing one.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=settings.drain_s,
    )
    Server(config).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())

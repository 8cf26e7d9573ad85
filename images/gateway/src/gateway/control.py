"""The admin's socket: one JSON object a line in, one a line out, in a folder only the host shares.

Who can open the socket may use it: its folder's mode is the lock.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gateway.admission.line import Line
from gateway.admission.tickets import Hold, HoldReason
from gateway.reloaded import FileUnusableError

_MODE = 0o600


class _Command(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HoldCommand(_Command):
    do: Literal["hold"]
    reason: HoldReason
    progress: str = Field(default="", max_length=200)


class ReleaseCommand(_Command):
    do: Literal["release"]


class CapacityCommand(_Command):
    do: Literal["capacity"]
    # What is larger than the answer's JSON can hold would leave every command without one.
    capacity: int = Field(ge=1, le=2**31)


class ReloadCommand(_Command):
    do: Literal["reload"]


class StatusCommand(_Command):
    do: Literal["status"]


Command = Annotated[
    HoldCommand | ReleaseCommand | CapacityCommand | ReloadCommand | StatusCommand,
    Field(discriminator="do"),
]
_COMMANDS: TypeAdapter[Command] = TypeAdapter(Command)


class Control:
    def __init__(self, line: Line, reload: Callable[[], int]) -> None:
        """`reload` returns how many requests it ended, as those of a revoked key."""
        self._line = line
        self._reload = reload
        self._server: asyncio.AbstractServer | None = None

    async def open(self, path: Path) -> None:
        # asyncio takes the place of a socket that a killed process has left.
        umask = os.umask(0o777 & ~_MODE)
        try:
            self._server = await asyncio.start_unix_server(self._serve, path)
        finally:
            os.umask(umask)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def obey(self, line: bytes) -> dict[str, object]:
        """What is said back to one line; always the status after it, if it was understood."""
        try:
            done = self._do(_COMMANDS.validate_json(line))
        except ValidationError as error:
            return {"ok": False, "error": error.errors(include_url=False)[0]["msg"]}
        except FileUnusableError as error:
            return {"ok": False, "error": str(error)}
        return {"ok": True, **self._status(), **done}

    def _do(self, command: Command) -> dict[str, object]:
        match command:
            case HoldCommand():
                self._line.hold("admin", Hold(command.reason, command.progress))
            case ReleaseCommand():
                self._line.release("admin")
            case CapacityCommand():
                self._line.set_capacity(command.capacity)
            case ReloadCommand():
                return {"ended": self._reload()}
            case StatusCommand():
                pass
        return {}

    def _status(self) -> dict[str, object]:
        found = self._line.snapshot()
        return {**asdict(found), "state": type(found.state).__name__.lower(), **asdict(found.state)}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(orjson.dumps(self.obey(line)) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            # Gone, or a line without end: nobody is left to tell.
            pass
        finally:
            writer.close()

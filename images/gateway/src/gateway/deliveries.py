"""What a client gets of an engine's stream: the stream, or one answer that is made of it."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from dataclasses import dataclass, field

from gateway.assembly import Assembly
from gateway.dialects.dialect import Dialect
from gateway.engine_request import EngineRequest, prompt_field
from gateway.errors import Headers
from gateway.filters import Chain
from gateway.policy import Policy
from gateway.reply import Reply
from gateway.usage import StreamMeter


@dataclass(slots=True)
class Delivery(ABC):
    dialect: Dialect
    asked: EngineRequest
    policy: Policy
    reply: Reply
    status: int
    headers: Headers
    """Of the engine's answer, those that may reach the client."""
    meter: StreamMeter

    @abstractmethod
    def take(self, part: bytes) -> Awaitable[None] | None:
        """The engine's next bytes; None where they are nothing to wait for."""

    @abstractmethod
    async def rest(self) -> None:
        """The engine has no more: also where that is too early."""

    @abstractmethod
    async def end(self) -> None:
        """The engine's stream was whole."""


@dataclass(slots=True)
class Streamed(Delivery):
    _chain: Chain = field(init=False)

    def __post_init__(self) -> None:
        self._chain = Chain(self.dialect.filters(self.asked, self.policy))

    def take(self, part: bytes) -> Awaitable[None] | None:
        self.meter.feed(part)
        said = self._chain.feed(part)
        return self._say(said) if said else None

    async def rest(self) -> None:
        if said := self._chain.end():
            await self._say(said)

    async def end(self) -> None:
        await self.reply.end_stream()

    def _say(self, said: bytes) -> Awaitable[None]:
        # No coroutine of its own for each of a stream's many parts.
        return self.reply.send_some(said) if self.reply.started else self._begin(said)

    async def _begin(self, said: bytes) -> None:
        headers = self.dialect.stream_headers(self.headers)
        await self.reply.start_stream(self.status, headers)
        await self.reply.send_some(said)


@dataclass(slots=True)
class Assembled(Delivery):
    """Nothing is sent before the end: whatever goes wrong until then is a status."""

    _assembly: Assembly = field(init=False)

    def __post_init__(self) -> None:
        self._assembly = Assembly(prompt_field(self.asked.parsed), self.meter)

    def take(self, part: bytes) -> None:
        self._assembly.feed(part)

    async def rest(self) -> None:
        pass

    async def end(self) -> None:
        body = self._assembly.whole()
        said = self.dialect.whole(self.asked, self.status, body, self.policy)
        kept = [(name, value) for name, value in self.headers if name != b"content-type"]
        json = (b"content-type", b"application/json")
        await self.reply.send_whole(self.status, [*kept, json], said)

"""One reply on its way to one client, and what happens when the client leaves."""

import asyncio
from collections.abc import AsyncIterator

from kt_legacy_engine.asgi import Receive, Scope, Send, answer, begin, client_left, more
from kt_legacy_engine.connection import hung_up
from kt_legacy_engine.desk import Desk, Run
from kt_legacy_engine.errors import ApiError
from kt_legacy_engine.generating import Ask, Chance, Event, Finished, Piece, Started
from kt_legacy_engine.replies import DONE, Shape, error_event, usage_of
from kt_legacy_engine.requests import Request

_SSE = "text/event-stream; charset=utf-8"
_SSE_HEADERS = (("cache-control", "no-cache"),)


class Answering:
    def __init__(self, desk: Desk, shape: Shape, request: Request) -> None:
        self._desk = desk
        self._shape = shape
        self._request = request
        self._reused_tokens = 0

    async def answer(self, ask: Ask, rid: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Whatever happens to the client, the desk is told when nobody waits any more."""
        run = await self._desk.begin(ask, rid, hung_up(scope))
        watcher = asyncio.ensure_future(client_left(receive))
        watcher.add_done_callback(lambda _: run.cancel())
        try:
            if self._request.stream:
                await self._stream(run, send)
            else:
                await self._whole(run, send)
        finally:
            run.cancel()
            watcher.cancel()

    async def _events(self, run: Run) -> AsyncIterator[Event]:
        while True:
            event = await run.events.get()
            if isinstance(event, ApiError):
                raise event
            if isinstance(event, Started):
                self._reused_tokens = event.reused_tokens
                continue
            yield event
            if isinstance(event, Finished):
                return

    async def _whole(self, run: Run, send: Send) -> None:
        texts: list[str] = []
        chances: list[Chance] = []
        async for event in self._events(run):
            if isinstance(event, Piece):
                texts.append(event.text)
                chances += event.chances
            elif isinstance(event, Finished):
                said = chances if run.ask.logprobs is not None else None
                usage = usage_of(len(run.ask.prompt), self._reused_tokens, event)
                await answer(
                    send, 200, self._shape.whole("".join(texts), said, event.finish, usage)
                )

    async def _stream(self, run: Run, send: Send) -> None:
        """Nothing is sent before the first token: until then an error still has its status."""
        if self._request.include_usage:
            self._shape.announce_usage()
        stream = _Stream(self._shape, send, logprobs=run.ask.logprobs is not None)
        try:
            async for event in self._events(run):
                await stream.begin()
                if isinstance(event, Piece):
                    await stream.piece(event)
                elif isinstance(event, Finished):
                    usage = usage_of(len(run.ask.prompt), self._reused_tokens, event)
                    await stream.end(event, usage if self._request.include_usage else None)
        except ApiError as error:
            if not stream.begun:
                raise
            await more(send, error_event(error.envelope), last=True)


class _Stream:
    def __init__(self, shape: Shape, send: Send, *, logprobs: bool) -> None:
        self._shape = shape
        self._send = send
        self._logprobs = logprobs
        self._chances: list[Chance] = []
        self.begun = False

    async def begin(self) -> None:
        if self.begun:
            return
        self.begun = True
        await begin(self._send, 200, _SSE, _SSE_HEADERS)
        if (opening := self._shape.opening()) is not None:
            await more(self._send, opening)

    async def piece(self, piece: Piece) -> None:
        self._chances += piece.chances
        if piece.text:
            await self._say(piece.text)

    async def end(self, finished: Finished, usage: dict[str, object] | None) -> None:
        if self._chances:
            await self._say("")
        last = self._shape.closing(finished.finish)
        if usage is not None:
            last += self._shape.usage_event(usage)
        await more(self._send, last + DONE, last=True)

    async def _say(self, text: str) -> None:
        chances, self._chances = self._chances, []
        await more(self._send, self._shape.event(text, chances if self._logprobs else None))

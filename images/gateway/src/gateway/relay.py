"""One answer on its way from the engine to the client, and what is known about it so far."""

import time

from prometheus_client import Histogram

from gateway.dialects.dialect import Dialect
from gateway.engine_request import EngineRequest
from gateway.errors import Headers, Refused, engine_refused
from gateway.filters import Chain
from gateway.policy import Policy
from gateway.reply import Reply
from gateway.upstream import Answer, EngineCutOffError
from gateway.usage import StreamMeter, Usage, usage_of_answer

# The engine is asked for no content-encoding; should it use one all the same, the client must know.
_RESPONSE_HEADERS = frozenset({b"content-type", b"content-encoding", b"retry-after"})


class Relay:
    def __init__(
        self, dialect: Dialect, asked: EngineRequest, policy: Policy, reply: Reply
    ) -> None:
        self.dialect = dialect
        self.asked = asked
        self.policy = policy
        self.reply = reply
        self.first_token_s: float | None = None
        """From the asking to the engine's first byte."""
        self.complete = False
        self._meter = StreamMeter(asked.prompt_tokens_estimate)
        self._whole_usage: Usage | None = None
        self._asked_s: float | None = None

    @property
    def phase(self) -> str:
        """Where a client that leaves now leaves from."""
        if self.first_token_s is not None and self.reply.started:
            return "streaming"
        return "queued" if self._asked_s is None else "waiting"

    @property
    def usage(self) -> Usage:
        if self._asked_s is None:
            return Usage()
        return self._whole_usage or self._meter.usage

    def ask_begins(self) -> None:
        self._asked_s = time.monotonic()

    async def pass_on(self, answer: Answer, first_byte_s: Histogram) -> None:
        headers = [(name, value) for name, value in answer.headers if name in _RESPONSE_HEADERS]
        # The status goes out with the first byte: until then an engine that dies is still a 502.
        part = await answer.read_some()
        if self._asked_s is not None:
            self.first_token_s = time.monotonic() - self._asked_s
            first_byte_s.observe(self.first_token_s)
        if answer.is_stream:
            await self._stream(answer, headers, part)
        else:
            await self._whole(answer, headers, part + await answer.read_all())
        self.complete = True

    async def _whole(self, answer: Answer, headers: Headers, body: bytes) -> None:
        self._whole_usage = usage_of_answer(body, self.asked.prompt_tokens_estimate)
        if self.reply.started:
            # A wait that showed has sent its 200; no status can follow, an event can.
            raise Refused(engine_refused(answer.status, body))
        said = self.dialect.whole(self.asked, answer.status, body, self.policy)
        await self.reply.send_whole(answer.status, headers, said)

    async def _stream(self, answer: Answer, headers: Headers, part: bytes) -> None:
        chain = Chain(self.dialect.filters(self.asked, self.policy))
        while part:
            self._meter.feed(part)
            await self._send(answer, headers, chain.feed(part))
            part = await answer.read_some()
        await self._send(answer, headers, chain.end())
        if not self._meter.done:
            # Clients take a stream that just ends for success.
            message = "the stream ended without [DONE]"
            raise EngineCutOffError(message)
        await self.reply.end_stream()

    async def _send(self, answer: Answer, headers: Headers, part: bytes) -> None:
        if not part:
            return
        if not self.reply.started:
            await self.reply.start_stream(answer.status, self.dialect.stream_headers(headers))
        await self.reply.send_some(part)

"""One answer on its way from the engine to the client, and what is known about it so far."""

import time
from http import HTTPStatus
from typing import Any

import orjson

from gateway.deadlines import Patience
from gateway.deliveries import Assembled, Streamed
from gateway.dialects.dialect import Dialect
from gateway.engine_refusals import engine_refused
from gateway.engine_request import EngineRequest, prompt_field
from gateway.errors import Headers, Refused
from gateway.metrics import Metrics
from gateway.policy import Policy
from gateway.reply import Reply
from gateway.tallies import Spread
from gateway.upstream import Answer, EngineBusyError, EngineCutOffError
from gateway.usage import StreamMeter, Usage, usage_of_answer

# The engine is asked for no content-encoding; should it use one all the same, the client must know.
_RESPONSE_HEADERS = frozenset({b"content-type", b"content-encoding", b"retry-after"})
_BUSY = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS})
_REFUSALS = (400, 599)
_UNSTREAMABLE = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.NOT_IMPLEMENTED}
)


class UnstreamableError(Exception):
    """The engine refuses as a stream what its client never asked for as one."""


class Relay:
    """`body`: as its client sent it. `asked`: what `policy` makes of that."""

    def __init__(
        self, dialect: Dialect, body: bytes, asked: EngineRequest, policy: Policy, reply: Reply
    ) -> None:
        self.dialect = dialect
        self.body = body
        self.asked = asked
        self.policy = policy
        self.reply = reply
        self.first_token_s: float | None = None
        """From the asking to the engine's first byte."""
        self.complete = False
        self.engine_ended = False
        """All that the engine had to say was read."""
        self.engine_id: str | None = None
        self._lost_once = False
        self._meter = StreamMeter(asked.prompt_tokens_estimate, asked.parsed.get("n") or 1)
        self._whole_usage: Usage | None = None
        self._asked_s: float | None = None

    @property
    def phase(self) -> str:
        """Where a client that leaves now leaves from."""
        if self.first_token_s is not None and self.reply.started:
            return "streaming"
        return "queued" if self._asked_s is None else "waiting"

    @property
    def asked_engine(self) -> bool:
        return self._asked_s is not None

    @property
    def is_silent(self) -> bool:
        """Nothing of an answer has come yet."""
        return self.first_token_s is None

    def may_ask_again(self, *, sent: bool) -> bool:
        """Not once an answer has begun, and once only if the engine may have died of the request."""
        if not self.is_silent or (sent and self._lost_once):
            return False
        self._lost_once = self._lost_once or sent
        return True

    @property
    def usage(self) -> Usage:
        if self._asked_s is None:
            return Usage()
        return self._whole_usage or self._meter.usage

    @property
    def _prompt_is_in(self) -> str:
        return prompt_field(self.asked.parsed)

    def reads(self, asked: EngineRequest, policy: Policy) -> None:
        """The same body by another policy. What it was charged with is settled with, too."""
        self.asked = asked._replace(
            background=self.asked.background,
            read_s=self.asked.read_s,
            prompt_tokens_estimate=self.asked.prompt_tokens_estimate,
            max_tokens_cap=self.asked.max_tokens_cap,
        )
        self.policy = policy

    def ask_begins(self) -> None:
        self._asked_s = time.monotonic()
        self.first_token_s = None
        self.engine_ended = False

    def put_back(self) -> None:
        """The engine was lost with the request, which waits for its turn again."""
        self._asked_s = None

    async def pass_on(self, answer: Answer, patience: Patience, metrics: Metrics) -> None:
        headers = [(name, value) for name, value in answer.headers if name in _RESPONSE_HEADERS]
        # The status goes out with the first byte: until then an engine that dies is still a 502.
        part = await answer.read_some()
        patience.heard()
        error = _first_error(part) if answer.is_stream else None
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE or _code(error) in _BUSY:
            message = f"the engine answered {answer.status} and that it is busy"
            raise EngineBusyError(message)
        if self._asked_s is not None:
            self.first_token_s = time.monotonic() - self._asked_s
            metrics.first_byte_s.of(self.dialect.path).observe(self.first_token_s)
        if answer.is_stream and not (self.asked.assembled and answer.status >= _REFUSALS[0]):
            if error is not None and not self.reply.started:
                self._refuse_hidden(error)
            await self._stream(answer, patience, headers, part, metrics.inter_token_s.of())
        else:
            patience.listens()
            await self._whole(answer, headers, part + await answer.read_all())
        self.complete = True

    def _refuse_hidden(self, error: dict[str, Any]) -> None:
        """A refusal that an engine hides in a 200, as the status that it should have been."""
        code = _code(error)
        if code is not None and _REFUSALS[0] <= code <= _REFUSALS[1]:
            said = orjson.dumps({"error": error})
            raise Refused(engine_refused(code, said, self._prompt_is_in))

    async def _whole(self, answer: Answer, headers: Headers, body: bytes) -> None:
        self.engine_ended = True
        if self.asked.assembled and answer.status in _UNSTREAMABLE and b"stream" in body:
            raise UnstreamableError
        self._whole_usage = usage_of_answer(body, self.asked.prompt_tokens_estimate)
        if self.reply.started:
            # A wait that showed has sent its 200; no status can follow, an event can.
            raise Refused(engine_refused(answer.status, body, self._prompt_is_in))
        said = self.dialect.whole(self.asked, answer.status, body, self.policy)
        await self.reply.send_whole(answer.status, headers, said)

    async def _stream(
        self,
        answer: Answer,
        patience: Patience,
        headers: Headers,
        part: bytes,
        inter_token_s: Spread,
    ) -> None:
        kind = Assembled if self.asked.assembled else Streamed
        to_client = kind(
            self.dialect, self.asked, self.policy, self.reply, answer.status, headers, self._meter
        )
        heard_s = patience.heard()
        while part:
            if (sending := to_client.take(part)) is not None:
                await sending
            patience.listens()
            part = await answer.read_some()
            heard_before_s, heard_s = heard_s, patience.heard()
            if part:
                inter_token_s.observe(heard_s - heard_before_s)
        self.engine_ended = True
        await to_client.rest()
        if not self._meter.done:
            # Clients take a stream that just ends for success.
            message = "the stream ended without [DONE]"
            raise EngineCutOffError(message)
        await to_client.end()


def _code(error: dict[str, Any] | None) -> int | None:
    code = None if error is None else error.get("code")
    return code if isinstance(code, int) else None


def _first_error(part: bytes) -> dict[str, Any] | None:
    if not part.startswith(b"data:") or b'"error"' not in part[:64]:
        return None
    try:
        error = orjson.loads(part.split(b"\n", 1)[0][5:])["error"]
    except (ValueError, LookupError, TypeError):
        return None
    return error if isinstance(error, dict) else None

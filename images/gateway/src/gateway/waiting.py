"""A request's time in the line: what its client sees of it, and what is counted."""

import itertools
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from gateway.admission.line import Line, Permit
from gateway.admission.tickets import Spent, Ticket
from gateway.caller import Caller
from gateway.dialects.dialect import Dialect
from gateway.engine_request import EngineRequest
from gateway.errors import Refused
from gateway.metrics import Metrics
from gateway.policy import Policy
from gateway.reply import Reply
from gateway.sign import Sign, queue_headers
from gateway.usage import Usage

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class WaitingRoom:
    line: Line
    metrics: Metrics

    async def permit(  # noqa: PLR0913 - all that a waiting client may be told, and how
        self,
        asked: EngineRequest,
        *,
        request_id: str,
        caller: Caller,
        reply: Reply,
        dialect: Dialect,
        policy: Policy,
    ) -> Permit:
        ticket = _ticket(asked, request_id, caller)
        if (permit := self.line.admit(ticket)) is None:
            sign = Sign(
                line=self.line, ticket=ticket, reply=reply, dialect=dialect, queue=policy.queue
            )
            permit = await _under(sign, self.line.wait(ticket))
        self.metrics.waited_s.of(caller.key_class).observe(permit.waited_s)
        return permit

    async def again(
        self, permit: Permit, *, reply: Reply, dialect: Dialect, policy: Policy
    ) -> Permit:
        """A new permit in place of one whose engine was lost."""
        sign = Sign(
            line=self.line,
            ticket=permit.ticket,
            reply=reply,
            dialect=dialect,
            queue=policy.queue,
        )
        return await _under(sign, self.line.again(permit))


async def _under(sign: Sign, entering: Coroutine[Any, Any, Permit]) -> Permit:
    sign.up()
    try:
        permit = await entering
        try:
            await sign.down()
        except BaseException:
            # Cancelled at the last moment: the permit is in nobody else's hands.
            permit.release(Spent(usage=Usage(), outcome="cancelled"))
            raise
    except Refused:
        await sign.down()
        raise
    finally:
        sign.drop()
    if permit.place is not None and not sign.reply.started:
        sign.reply.more_headers = queue_headers(permit.place)
    return permit


def _ticket(asked: EngineRequest, request_id: str, caller: Caller) -> Ticket:
    return Ticket(
        number=next(_numbers),
        request_id=request_id,
        key_id=caller.key_id,
        key_class=caller.key_class,
        limits=caller.limits,
        background=asked.background,
        prompt_tokens_estimate=asked.prompt_tokens_estimate,
        max_tokens_cap=asked.max_tokens_cap,
        prefix=asked.prefix,
        stream=asked.stream,
    )

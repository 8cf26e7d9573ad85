"""A request's time in the line: what its client sees of it, and what is counted."""

import itertools
from dataclasses import dataclass

from gateway.admission.line import Line, Permit
from gateway.admission.tickets import Ticket
from gateway.caller import Caller
from gateway.dialects.dialect import Dialect
from gateway.engine_request import EngineRequest
from gateway.metrics import Metrics
from gateway.policy import Policy
from gateway.reply import Reply

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
        reply: Reply,  # noqa: ARG002 - a wait that shows has to answer
        dialect: Dialect,  # noqa: ARG002 - and in the caller's words
        policy: Policy,  # noqa: ARG002 - as often as the profile wants
    ) -> Permit:
        permit = await self.line.enter(_ticket(asked, request_id, caller))
        self.metrics.waited_s.labels(caller.key_class).observe(permit.waited_s)
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
    )

"""What every permit ends with: the quota settled, the books kept, the line told what it cost."""

import time
from dataclasses import dataclass
from types import TracebackType

from typing_extensions import Self

from gateway.admission.line import Permit
from gateway.admission.tickets import Outcome, Spent
from gateway.aftermath import Aftermath
from gateway.caller import Caller
from gateway.engine_request import EngineRequest
from gateway.ledger import Entry, Ledger
from gateway.metrics import Metrics
from gateway.quota import Quota
from gateway.relay import Relay
from gateway.upstream import EngineError
from gateway.usage import Usage


@dataclass(frozen=True, slots=True)
class Accounts:
    quota: Quota
    ledger: Ledger
    metrics: Metrics
    aftermath: Aftermath

    def charge(self, caller: Caller, asked: EngineRequest) -> None:
        """Refused where the key has used up what it may."""
        self.quota.charge(caller, _estimate(asked))

    def refund(self, caller: Caller, asked: EngineRequest) -> None:
        """For a request that was charged and got no permit."""
        self.quota.settle(caller, _estimate(asked), Usage())

    def held(self, permit: Permit, caller: Caller, relay: Relay) -> "Held":
        return Held(self, permit, caller, relay)

    def end(
        self, permit: Permit, caller: Caller, relay: Relay, outcome: Outcome, *, engine_ended: bool
    ) -> None:
        """Settles all of it, at once or when the engine has stopped."""

        def end() -> None:
            spent = Spent(
                usage=relay.usage,
                outcome=outcome,
                first_token_s=relay.first_token_s,
                held_s=time.monotonic() - permit.granted_s,
            )
            permit.release(spent)
            self._book(permit, caller, relay, spent)

        if engine_ended or relay.engine_ended or not relay.asked_engine:
            end()
        else:
            self.aftermath.begin(relay.engine_id, relay.policy.capabilities, end)

    def _book(self, permit: Permit, caller: Caller, relay: Relay, spent: Spent) -> None:
        model = relay.policy.model.public or relay.policy.profile
        usage = spent.usage
        self.quota.settle(caller, _estimate(relay.asked), usage)
        counted = {
            "prompt": usage.prompt_tokens,
            "completion": usage.completion_tokens,
            "cached": usage.cached_tokens,
            "wasted": 0 if spent.outcome == "finished" else usage.completion_tokens,
        }
        for kind, tokens in counted.items():
            self.metrics.tokens.of(caller.key_id, model, kind).inc(tokens)
        self.ledger.book(
            Entry(
                at_s=time.time(),
                key_id=caller.key_id,
                model=model,
                outcome=spent.outcome,
                usage=usage,
                waited_s=permit.waited_s,
                held_s=spent.held_s,
            )
        )


class Held:
    """A permit in use: released once the engine has ended too, whatever the end is."""

    def __init__(self, accounts: Accounts, permit: Permit, caller: Caller, relay: Relay) -> None:
        self._accounts = accounts
        self._permit = permit
        self._caller = caller
        self._relay = relay
        self.kept = False
        """It is not released: its request goes back into the line."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        outcome: Outcome = "finished"
        if error is not None:
            outcome = "failed" if isinstance(error, Exception) else "cancelled"
        engine_ended = isinstance(error, EngineError) and error.engine_ended
        if not self.kept:
            self._accounts.end(
                self._permit, self._caller, self._relay, outcome, engine_ended=engine_ended
            )


def _estimate(asked: EngineRequest) -> int:
    return asked.prompt_tokens_estimate + asked.max_tokens_cap

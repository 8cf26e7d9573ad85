"""What every permit ends with: the quota settled, the books kept, the line told what it cost."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.admission.line import Permit
from gateway.admission.tickets import Outcome, Spent
from gateway.caller import Caller
from gateway.engine_request import EngineRequest
from gateway.ledger import Entry, Ledger
from gateway.metrics import Metrics
from gateway.quota import Quota
from gateway.relay import Relay


@dataclass(frozen=True, slots=True)
class Accounts:
    quota: Quota
    ledger: Ledger
    metrics: Metrics

    def charge(self, caller: Caller, asked: EngineRequest) -> None:
        """Refused where the key has used up what it may."""
        self.quota.charge(caller, _estimate(asked))

    @contextmanager
    def held(self, permit: Permit, caller: Caller, relay: Relay) -> Iterator[None]:
        """Releases the permit at the end, whatever the end is."""
        outcome: Outcome = "cancelled"
        try:
            yield
            outcome = "finished"
        except Exception:
            outcome = "failed"
            raise
        finally:
            held_s = time.monotonic() - permit.granted_s
            spent = Spent(
                usage=relay.usage,
                outcome=outcome,
                first_token_s=relay.first_token_s,
                held_s=held_s,
            )
            permit.release(spent)
            self._book(permit, caller, relay, spent)

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
            self.metrics.tokens.labels(caller.key_id, model, kind).inc(tokens)
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


def _estimate(asked: EngineRequest) -> int:
    return asked.prompt_tokens_estimate + asked.max_tokens_cap

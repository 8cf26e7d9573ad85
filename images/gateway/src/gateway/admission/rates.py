"""What is learned from requests that have ended: how fast the engine is, how much a key asks."""

from collections import deque
from dataclasses import dataclass, field, replace

from gateway.admission.tickets import Spent, Ticket

_WEIGHT_OF_THE_NEWEST = 0.05
_UNKNOWN_COMPLETION_TOKENS = 256.0
_REMEMBERED = 64
# Of what was expected, for one that has lasted longer than any that is remembered.
_LEAST_REMAINING = 0.25


@dataclass(slots=True)
class _Ratio:
    """A moving average of a ratio, in which a large request counts for more than a small one."""

    over: float = 0.0
    under: float = 0.0

    def learn(self, over: float, under: float) -> None:
        self.over += _WEIGHT_OF_THE_NEWEST * (over - self.over)
        self.under += _WEIGHT_OF_THE_NEWEST * (under - self.under)

    @property
    def value(self) -> float | None:
        return self.over / self.under if self.under > 0 else None


@dataclass(slots=True)
class Rates:
    _prefill: _Ratio = field(default_factory=_Ratio)
    """Seconds over prompt tokens, as the ticket estimates these: what it gets wrong cancels out."""
    _decode: _Ratio = field(default_factory=_Ratio)
    """Seconds over tokens of one answer, beside as many others as there were."""
    _saturated: bool = False
    _completion: _Ratio = field(default_factory=_Ratio)
    _completion_of: dict[str, _Ratio] = field(default_factory=dict)
    _true_to_expected: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """Of the times that permits were held: how those that last long go on."""

    def completion_tokens(self, ticket: Ticket) -> float:
        """How many the engine is expected to generate for it."""
        known = self._completion_of.get(ticket.key_id, self._completion).value
        expected = _UNKNOWN_COMPLETION_TOKENS if known is None else known
        return min(float(ticket.max_tokens_cap), expected)

    def hold_s(self, ticket: Ticket) -> float | None:
        """For how long a permit is expected to be held; None before anything was learned."""
        if (decode := self._decode.value) is None:
            return None
        prefill = self._prefill.value or 0.0
        return ticket.prompt_tokens_estimate * prefill + self.completion_tokens(ticket) * decode

    def remaining_s(self, ticket: Ticket, elapsed_s: float) -> float | None:
        """For how much longer it is expected to be held, as long as it has been already."""
        hold_s = self.hold_s(ticket)
        if not hold_s:
            return hold_s
        elapsed = elapsed_s / hold_s
        longer = [ratio - elapsed for ratio in self._true_to_expected if ratio > elapsed]
        remaining = sum(longer) / len(longer) if longer else max(_LEAST_REMAINING, 1 - elapsed)
        return hold_s * remaining

    def learn(self, ticket: Ticket, spent: Spent, *, saturated: bool) -> None:
        """`saturated`: no permit was left. An engine with little to do is faster than it will be."""
        if spent.outcome == "failed":
            return
        if hold_s := self.hold_s(ticket):
            self._true_to_expected.append(spent.held_s / hold_s)
        generated = spent.usage.completion_tokens
        self._completion.learn(generated, 1)
        if ticket.key_id not in self._completion_of:
            self._completion_of[ticket.key_id] = replace(self._completion)
        self._completion_of[ticket.key_id].learn(generated, 1)
        if saturated or not self._saturated:
            self._learn_pace(ticket, spent)
        if saturated and not self._saturated and generated:
            self._saturated = True

    def _learn_pace(self, ticket: Ticket, spent: Spent) -> None:
        prompt = ticket.prompt_tokens_estimate
        if ticket.stream and spent.first_token_s is not None:
            self._prefill.learn(spent.first_token_s, prompt)
            decode_s = spent.held_s - spent.first_token_s
        else:
            # A whole answer comes at its end: only what is known of prompts tells the two apart.
            decode_s = spent.held_s - prompt * (self._prefill.value or 0.0)
        if spent.usage.completion_tokens:
            self._decode.learn(max(0.0, decode_s), spent.usage.completion_tokens)

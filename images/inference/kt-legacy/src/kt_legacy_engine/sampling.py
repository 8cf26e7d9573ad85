"""From logits to the next token. Temperature, top_k and top_p as in transformers, in that order.

Penalties and biases are those of OpenAI's API, applied to the logits before anything else.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kt_legacy_engine.model import Logits

Probabilities = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """`temperature` 0: always the likeliest. `top_k` 0: all. `seed` None: differs every time."""

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bias: Mapping[int, float] = field(default_factory=dict)


class Sampler:
    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = np.random.default_rng(sampling.seed)
        self._seen: Counter[int] = Counter()

    def pick(self, logits: Logits, forbidden: frozenset[int] = frozenset()) -> int:
        adjusted = self._adjusted(logits, forbidden)
        if self._sampling.temperature == 0:
            token = int(np.argmax(adjusted))
        else:
            token = self._draw(probabilities(adjusted, self._sampling))
        self._seen[token] += 1
        return token

    def _adjusted(self, logits: Logits, forbidden: frozenset[int]) -> Logits:
        changes = dict(self._sampling.bias)
        if self._sampling.presence_penalty or self._sampling.frequency_penalty:
            for token, times in self._seen.items():
                penalty = self._sampling.presence_penalty
                penalty += times * self._sampling.frequency_penalty
                changes[token] = changes.get(token, 0.0) - penalty
        if not changes and not forbidden:
            return logits
        adjusted: Logits = logits.copy()
        for token, change in changes.items():
            if token < len(adjusted):
                adjusted[token] += change
        adjusted[list(forbidden)] = -np.inf
        return adjusted

    def _draw(self, chances: Probabilities) -> int:
        # By hand: `choice` refuses sums that rounding has moved off 1.
        cumulated = np.cumsum(chances)
        drawn = self._random.random() * cumulated[-1]
        return int(np.searchsorted(cumulated, drawn, side="right"))


def probabilities(logits: Logits, sampling: Sampling) -> Probabilities:
    """Of every token at a temperature above 0; 0 for those that top_k or top_p rule out."""
    scaled = logits.astype(np.float64)
    # First, so that the likeliest stays finite however low the temperature is.
    scaled -= scaled.max()
    with np.errstate(over="ignore"):
        scaled /= sampling.temperature
    if 0 < sampling.top_k < len(scaled):
        least = np.partition(scaled, -sampling.top_k)[-sampling.top_k]
        scaled[scaled < least] = -np.inf
    if sampling.top_p < 1:
        scaled = _nucleus(scaled, sampling.top_p)
    return _softmax(scaled)


def log_probabilities(logits: Logits) -> NDArray[np.float64]:
    """The model's own, before temperature and all else."""
    exact = logits.astype(np.float64)
    exact -= exact.max()
    return np.asarray(exact - np.log(np.exp(exact).sum()))


def _nucleus(scaled: Probabilities, top_p: float) -> Probabilities:
    """The fewest likeliest tokens that make up `top_p` together, and never less than one."""
    order = np.argsort(scaled, kind="stable")
    unlikely = np.cumsum(_softmax(scaled[order])) <= 1 - top_p
    unlikely[-1] = False
    scaled[order[unlikely]] = -np.inf
    return scaled


def _softmax(scaled: Probabilities) -> Probabilities:
    weights = np.exp(scaled - scaled.max())
    return np.asarray(weights / weights.sum())

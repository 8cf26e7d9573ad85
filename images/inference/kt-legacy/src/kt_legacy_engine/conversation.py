"""The sequence that the engine has in its cache: what a new prompt shares with it is not read again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kt_legacy_engine.model import EngineBroken, Logits, Model


class Cancelled(Exception):
    """Nobody waits for this reply any more."""


@dataclass(slots=True)
class Counters:
    """Since the start. `to_prefill`: tokens of the present prompt that are still to be read."""

    prefilled: int = 0
    reused: int = 0
    decoded: int = 0
    to_prefill: int = 0


class Conversation:
    def __init__(self, model: Model, *, chunk_tokens: int, counters: Counters) -> None:
        self._model = model
        self._chunk_tokens = chunk_tokens
        self._counters = counters
        self._cached: list[int] = []

    @property
    def cached_tokens(self) -> int:
        return len(self._cached)

    def begin(self, prompt: Sequence[int]) -> int:
        """Keeps what `prompt` shares with the cache: how many tokens need not be read again.

        Never all of them: the logits after the last one are not in the cache.
        """
        kept = min(_common(self._cached, prompt), len(prompt) - 1)
        self._forget_after(kept)
        self._counters.reused += kept
        return kept

    def read(self, prompt: Sequence[int], cancelled: Callable[[], bool]) -> Logits:
        """The logits after `prompt`, which `begin` was told. Cancelled: between two chunks.

        What has been read until then stays, so that asking again goes on from there.
        """
        try:
            return self._read(prompt, cancelled)
        finally:
            self._counters.to_prefill = 0

    def _read(self, prompt: Sequence[int], cancelled: Callable[[], bool]) -> Logits:
        while True:
            at = len(self._cached)
            self._counters.to_prefill = len(prompt) - at
            if cancelled():
                raise Cancelled
            chunk = prompt[at : at + self._chunk_tokens]
            logits = self._extend(chunk)
            self._counters.prefilled += len(chunk)
            if len(self._cached) == len(prompt):
                return logits

    def append(self, token: int) -> Logits:
        logits = self._extend((token,))
        self._counters.decoded += 1
        return logits

    def _extend(self, tokens: Sequence[int]) -> Logits:
        logits = self._model.extend(tokens)
        # Where one is no number, the highest is none either.
        if not np.isfinite(logits.max()):
            raise EngineBroken(
                "the engine's logits are no numbers: what it has in its memory is not to be trusted"
            )
        self._cached += tokens
        return logits

    def _forget_after(self, length: int) -> None:
        if length < len(self._cached):
            self._model.truncate(length)
            del self._cached[length:]


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    shared = min(len(left), len(right))
    return next((at for at in range(shared) if left[at] != right[at]), shared)

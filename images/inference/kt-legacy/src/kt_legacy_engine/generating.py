"""One reply: reads the prompt, picks token after token, says what is sure."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from kt_legacy_engine.conversation import Cancelled, Conversation
from kt_legacy_engine.model import Logits, Tokenizer
from kt_legacy_engine.sampling import Sampler, Sampling, log_probabilities
from kt_legacy_engine.words import Stops, Words


class Finish(str, Enum):
    """Why a reply ended, in the words of OpenAI's API; ABORT is ours."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is to be generated. `logprobs`: None for none, else how many alternatives to name."""

    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stops: tuple[str, ...] = ()
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Chance:
    """A token, how likely it was, and which others were likeliest."""

    token: int
    logprob: float
    alternatives: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Started:
    """The prompt is about to be read. `reused_tokens` of it are in the cache already."""

    reused_tokens: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that is sure, maybe none, and the chances of the tokens since the last piece."""

    text: str
    chances: tuple[Chance, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """`tokens`: how many were picked, the one that ended the reply among them."""

    finish: Finish
    tokens: int


Event = Started | Piece | Finished


def generate(
    ask: Ask, conversation: Conversation, tokenizer: Tokenizer, cancelled: Callable[[], bool]
) -> Generator[Event, None, None]:
    """`Finished` comes last, always, unless the engine fails."""
    if cancelled():
        # What is in the cache is of use to somebody else.
        yield Finished(Finish.ABORT, 0)
        return
    yield Started(conversation.begin(ask.prompt))
    try:
        logits = conversation.read(ask.prompt, cancelled)
    except Cancelled:
        yield Finished(Finish.ABORT, 0)
        return
    yield from _Reply(ask, tokenizer).tokens(logits, conversation, cancelled)


class _Reply:
    def __init__(self, ask: Ask, tokenizer: Tokenizer) -> None:
        self._ask = ask
        self._ends = tokenizer.end_tokens
        self._words = Words(tokenizer)
        self._stops = Stops(ask.stops)
        self._sampler = Sampler(ask.sampling)
        self._count = 0

    def tokens(
        self, logits: Logits, conversation: Conversation, cancelled: Callable[[], bool]
    ) -> Generator[Event, None, None]:
        while not cancelled():
            token = self._sampler.pick(logits, self._forbidden())
            self._count += 1
            if token in self._ends:
                yield from self._close(Finish.STOP)
                return
            piece, stopped = self._say(token, logits)
            yield piece
            if stopped:
                yield Finished(Finish.STOP, self._count)
                return
            if self._count >= self._ask.max_tokens:
                yield from self._close(Finish.LENGTH)
                return
            # A step costs more than a look.
            if cancelled():
                break
            logits = conversation.append(token)
        yield Finished(Finish.ABORT, self._count)

    def _forbidden(self) -> frozenset[int]:
        if self._ask.ignore_eos or self._count < self._ask.min_tokens:
            return self._ends
        return frozenset()

    def _say(self, token: int, logits: Logits) -> tuple[Piece, bool]:
        early = self._count <= self._ask.min_tokens
        text, stopped = self._stops.push(self._words.push(token), early=early)
        return Piece(text, self._chances(token, logits)), stopped

    def _close(self, finish: Finish) -> Generator[Event, None, None]:
        text, stopped = self._stops.push(self._words.end())
        if not stopped:
            text += self._stops.end()
        if text:
            yield Piece(text, ())
        yield Finished(Finish.STOP if stopped else finish, self._count)

    def _chances(self, token: int, logits: Logits) -> tuple[Chance, ...]:
        if self._ask.logprobs is None:
            return ()
        chances = log_probabilities(logits)
        count = min(self._ask.logprobs, len(chances))
        best = np.argpartition(chances, -count)[-count:] if count else np.array([], dtype=int)
        ordered = sorted(((int(t), float(chances[t])) for t in best), key=lambda c: -c[1])
        return (Chance(token, float(chances[token]), tuple(ordered)),)

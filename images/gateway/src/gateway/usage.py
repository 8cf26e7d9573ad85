"""What an answer cost in tokens, read beside the bytes that pass: never in their way."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

_MOST_TOKENS = 2**53
"""No engine's number of them; the books could not hold more than 2**63."""


class Usage(NamedTuple):
    """`estimated`: the engine did not say; prompt by size, completion by events that passed."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    estimated: bool = True


class StreamMeter:
    """Reads an engine's event stream, in pieces of any size, for its usage and its end.

    Engines say the usage of all answers at the end, of each answer at its end (llama.cpp), or so
    far, with each piece.
    """

    def __init__(self, prompt_tokens_estimate: int, answers_to_a_prompt: int = 1) -> None:
        self._prompt_tokens_estimate = prompt_tokens_estimate
        self._answers_to_a_prompt = answers_to_a_prompt
        self._line = b""
        self._deltas = 0
        self._at_ends: list[Usage] = []
        self._of_choices: dict[Any, Usage] = {}
        self.done = False

    @property
    def usage(self) -> Usage:
        if said := self._at_ends or list(self._of_choices.values()):
            return said[0] if len(said) == 1 else _together(said, self._answers_to_a_prompt)
        return Usage(prompt_tokens=self._prompt_tokens_estimate, completion_tokens=self._deltas)

    def feed(self, part: bytes) -> None:
        """The stream's next bytes, where nobody else reads its events."""
        if not self._line and part.find(b"\n") == len(part) - 2 and part.endswith(b"\n\n"):
            # One whole event of one line, as most come.
            if part.startswith(b"data:"):
                self._read(part[5:-2].strip())
            return
        *lines, self._line = (self._line + part).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._read(line[5:].strip())

    def _read(self, event: bytes) -> None:
        if event == b"[DONE]":
            self.done = True
            return
        # Faster than `in`, which makes an exception on its way.
        if event.find(b'"delta"') != -1 or event.find(b'"text"') != -1:
            self._deltas += 1
        # Most events carry no usage, or null: those are not parsed.
        if event.find(b'"prompt_tokens"') != -1:
            self._read_usage(event)

    def _read_usage(self, event: bytes) -> None:
        try:
            self._take_usage(orjson.loads(event))
        except ValueError:
            return

    def take(self, chunk: Mapping[str, Any]) -> None:
        """One event that is parsed already: each goes to `feed` or here."""
        choices = chunk.get("choices")
        if choices and ("delta" in choices[0] or "text" in choices[0]):
            self._deltas += 1
        self._take_usage(chunk)

    def _take_usage(self, chunk: Mapping[str, Any]) -> None:
        try:
            if (found := chunk.get("usage")) is None:
                return
            if choices := chunk.get("choices"):
                self._of_choices[choices[0].get("index", 0)] = _usage(found)
            else:
                self._at_ends.append(_usage(found))
        except (ValueError, LookupError, AttributeError, TypeError):
            # What an engine calls usage and is none is no reason to fail an answer.
            return


def usage_of_answer(body: bytes, prompt_tokens_estimate: int) -> Usage:
    """The usage of a whole answer."""
    return _usage_in(body) or Usage(prompt_tokens=prompt_tokens_estimate)


def _usage_in(text: bytes) -> Usage | None:
    try:
        found = orjson.loads(text).get("usage")
        return None if found is None else _usage(found)
    except (ValueError, AttributeError, TypeError):
        # What an engine calls usage and is none is no reason to fail an answer.
        return None


def _together(said: Sequence[Usage], answers_to_a_prompt: int) -> Usage:
    """The answers to one prompt share it; those to several do not."""

    def shared(tokens: Iterable[int]) -> int:
        return sum(tokens) // answers_to_a_prompt

    return Usage(
        prompt_tokens=shared(each.prompt_tokens for each in said),
        completion_tokens=sum(each.completion_tokens for each in said),
        cached_tokens=shared(each.cached_tokens for each in said),
        estimated=False,
    )


def _usage(found: Mapping[str, Any]) -> Usage:
    details = found.get("prompt_tokens_details") or {}
    return Usage(
        prompt_tokens=_tokens(found.get("prompt_tokens")),
        completion_tokens=_tokens(found.get("completion_tokens")),
        cached_tokens=_tokens(details.get("cached_tokens")),
        estimated=False,
    )


def _tokens(said: Any) -> int:
    tokens = int(said or 0)
    if not 0 <= tokens <= _MOST_TOKENS:
        message = f"{tokens} tokens"
        raise ValueError(message)
    return tokens

"""The shapes of OpenAI's answers: whole, and piece by piece."""

import codecs
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from kt_legacy_engine.generating import Chance, Finish, Finished
from kt_legacy_engine.model import Tokenizer

DONE = b"data: [DONE]\n\n"


class Shape(ABC):
    """What chat and completions differ in."""

    def __init__(self, *, id_: str, model: str, created: int, tokenizer: Tokenizer) -> None:
        self._head: dict[str, Any] = {"id": id_, "created": created, "model": model}
        self._tokenizer = tokenizer

    def announce_usage(self) -> None:
        """Of a stream that ends with its usage, all other events say that they have none."""
        self._head |= {"usage": None}

    @abstractmethod
    def opening(self) -> bytes | None:
        """The first event of a stream."""

    @abstractmethod
    def event(self, text: str, chances: Sequence[Chance] | None) -> bytes: ...

    @abstractmethod
    def closing(self, finish: Finish) -> bytes: ...

    @abstractmethod
    def whole(
        self,
        text: str,
        chances: Sequence[Chance] | None,
        finish: Finish,
        usage: dict[str, Any],
    ) -> bytes: ...

    @abstractmethod
    def usage_event(self, usage: dict[str, Any]) -> bytes: ...


class ChatShape(Shape):
    def opening(self) -> bytes | None:
        return self._chunk({"role": "assistant", "content": "", "refusal": None}, None, None)

    def event(self, text: str, chances: Sequence[Chance] | None) -> bytes:
        return self._chunk({"content": text}, None, chances)

    def closing(self, finish: Finish) -> bytes:
        return self._chunk({}, finish, None)

    def whole(
        self,
        text: str,
        chances: Sequence[Chance] | None,
        finish: Finish,
        usage: dict[str, Any],
    ) -> bytes:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": self._logprobs(chances),
            "finish_reason": finish.value,
        }
        kind = {"object": "chat.completion"}
        return _json(self._head | kind | {"choices": [choice], "usage": usage})

    def usage_event(self, usage: dict[str, Any]) -> bytes:
        kind = {"object": "chat.completion.chunk"}
        return _sse(self._head | kind | {"choices": [], "usage": usage})

    def _chunk(
        self, delta: dict[str, str | None], finish: Finish | None, chances: Sequence[Chance] | None
    ) -> bytes:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": self._logprobs(chances),
            "finish_reason": finish and finish.value,
        }
        return _sse(self._head | {"object": "chat.completion.chunk", "choices": [choice]})

    def _logprobs(self, chances: Sequence[Chance] | None) -> dict[str, Any] | None:
        if chances is None:
            return None
        content = [
            self._entry(chance.token, chance.logprob)
            | {"top_logprobs": [self._entry(*other) for other in chance.alternatives]}
            for chance in chances
        ]
        return {"content": content, "refusal": None}

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        raw = self._tokenizer.raw(token)
        return {
            "token": raw.decode(errors="replace"),
            "logprob": _finite(logprob),
            "bytes": list(raw),
        }


class CompletionShape(Shape):
    """Offsets of tokens count from the start of the reply."""

    def __init__(self, *, id_: str, model: str, created: int, tokenizer: Tokenizer) -> None:
        super().__init__(id_=id_, model=model, created=created, tokenizer=tokenizer)
        self._head |= {"object": "text_completion"}
        # Tokens may end within a character: it counts once it is whole.
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def opening(self) -> bytes | None:
        return None

    def event(self, text: str, chances: Sequence[Chance] | None) -> bytes:
        return _sse(self._head | {"choices": [self._choice(text, chances, None)]})

    def closing(self, finish: Finish) -> bytes:
        return _sse(self._head | {"choices": [self._choice("", None, finish)]})

    def whole(
        self,
        text: str,
        chances: Sequence[Chance] | None,
        finish: Finish,
        usage: dict[str, Any],
    ) -> bytes:
        choices = [self._choice(text, chances, finish)]
        return _json(self._head | {"choices": choices, "usage": usage})

    def usage_event(self, usage: dict[str, Any]) -> bytes:
        return _sse(self._head | {"choices": [], "usage": usage})

    def _choice(
        self, text: str, chances: Sequence[Chance] | None, finish: Finish | None
    ) -> dict[str, Any]:
        logprobs = None if chances is None else self._logprobs(chances)
        return {
            "index": 0,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish and finish.value,
        }

    def _logprobs(self, chances: Sequence[Chance]) -> dict[str, Any]:
        texts = [self._text(chance.token) for chance in chances]
        offsets = []
        for chance in chances:
            offsets.append(self._offset)
            self._offset += len(self._characters.decode(self._tokenizer.raw(chance.token)))
        return {
            "tokens": texts,
            "token_logprobs": [_finite(chance.logprob) for chance in chances],
            "top_logprobs": [
                {
                    self._text(token): _finite(logprob)
                    # The one that was picked too, though it may not be among the likeliest.
                    for token, logprob in (*chance.alternatives, (chance.token, chance.logprob))
                }
                for chance in chances
            ],
            "text_offset": offsets,
        }

    def _text(self, token: int) -> str:
        return self._tokenizer.raw(token).decode(errors="replace")


def usage_of(prompt_tokens: int, reused_tokens: int, finished: Finished) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": finished.tokens,
        "total_tokens": prompt_tokens + finished.tokens,
        "prompt_tokens_details": {"cached_tokens": reused_tokens},
    }


def models(name: str, created: int, context_tokens: int) -> bytes:
    return _json({"object": "list", "data": [_model(name, created, context_tokens)]})


def model(name: str, created: int, context_tokens: int) -> bytes:
    return _json(_model(name, created, context_tokens))


def error_event(envelope: dict[str, Any]) -> bytes:
    return _sse(envelope)


def _model(name: str, created: int, context_tokens: int) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "kt-legacy",
        "max_model_len": context_tokens,
    }


def _finite(logprob: float) -> float:
    # JSON knows no infinity. This is what OpenAI's API says of a token that could not be.
    return max(logprob, -9999.0)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _sse(value: Any) -> bytes:
    return b"data: " + _json(value) + b"\n\n"

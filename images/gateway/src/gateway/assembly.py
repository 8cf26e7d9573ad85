"""An engine's stream put together as the whole answer that it would have given without one.

Knows the shape of OpenAI's chunks, and keeps what it has no rule for: in a choice texts and lists
grow by their pieces, numbered items each by itself, and of anything else the last word counts.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import orjson

from gateway.dialects.engine_errors import UNUSABLE
from gateway.engine_refusals import engine_refused
from gateway.errors import ApiError, Refused
from gateway.usage import StreamMeter

_KINDS = {"chat.completion.chunk": "chat.completion"}
# Texts that name something: they are said once, or said again, but never in pieces.
_NAMES = frozenset({"role", "id", "type", "name"})
_ERRORS = range(400, 600)


class _Text(list[str]):
    """A text in its pieces: to add to a long one would copy it for each token."""


class _Numbered(dict[int, dict[str, Any]]):
    """Items that say which one they go on with, as calls of tools do."""


class Assembly:
    """One answer, of which a stream in pieces of any size is read, each event once.

    Refused where the engine says in its stream that it failed, or says what is no chunk.
    """

    def __init__(self, prompt_is_in: str, meter: StreamMeter) -> None:
        """`prompt_is_in`: the field to name where the engine finds the prompt too long.

        `meter` is told of each event.
        """
        self._prompt_is_in = prompt_is_in
        self._meter = meter
        self._rest = b""
        self._answer: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def feed(self, part: bytes) -> None:
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            if (event := line[5:].strip()) == b"[DONE]":
                self._meter.done = True
            else:
                self._read(event)

    def whole(self) -> bytes:
        """The answer. Refused where the stream had none."""
        if not self._choices:
            raise Refused(UNUSABLE)
        kind = self._answer.get("object")
        try:
            choices = [_complete(choice) for _, choice in sorted(self._choices.items())]
            whole = {**self._answer, "object": _KINDS.get(str(kind), kind), "choices": choices}
            return orjson.dumps(whole)
        except TypeError as error:
            # What was a text became a list, or a number a name.
            raise Refused(UNUSABLE) from error

    def _read(self, event: bytes) -> None:
        try:
            # Of several prompts llama.cpp's stream begins with a null.
            if (chunk := orjson.loads(event)) is None:
                return
            if chunk.get("error") is not None:
                raise Refused(self._error(event, chunk["error"]))
            self._meter.take(chunk)
            self._add(chunk)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise Refused(UNUSABLE) from error

    def _error(self, event: bytes, error: Any) -> ApiError:
        code = error.get("code") if isinstance(error, dict) else None
        status: int = HTTPStatus.BAD_GATEWAY
        if isinstance(code, int) and code in _ERRORS:
            status = code
        return engine_refused(status, event, self._prompt_is_in)

    def _add(self, chunk: dict[str, Any]) -> None:
        for piece in chunk.pop("choices", ()):
            number = piece.get("index", 0)
            if (choice := self._choices.get(number)) is None:
                choice = self._choices[number] = {}
            _add_piece(choice, piece)
        for name, value in chunk.items():
            if value is not None or name not in self._answer:
                self._answer[name] = value


def _add_piece(choice: dict[str, Any], piece: Mapping[str, Any]) -> None:
    for name, value in piece.items():
        if name == "delta":
            _grow(choice.setdefault("message", {}), value.items())
        elif name == "text":
            _grow(choice, ((name, value),))
        else:
            choice[name] = _longer(choice.get(name), value)


def _grow(whole: dict[str, Any], piece: Iterable[tuple[str, Any]]) -> None:
    for name, value in piece:
        known = whole.get(name)
        if isinstance(value, str):
            if name in _NAMES:
                whole[name] = known or value
            elif known is None:
                whole[name] = _Text((value,))
            else:
                known.append(value)
        elif isinstance(value, dict):
            if known is None:
                known = whole[name] = {}
            _grow(known, value.items())
        elif value and isinstance(value, list) and _is_numbered(value[0]):
            if known is None:
                known = whole[name] = _Numbered()
            for item in value:
                _grow(known.setdefault(item["index"], {}), item.items())
        else:
            whole[name] = _longer(known, value)


def _is_numbered(item: Any) -> bool:
    return isinstance(item, dict) and "index" in item


def _longer(known: Any, more: Any) -> Any:
    """Lists go on where they were, also those inside; of the rest the last word counts."""
    if more is None:
        return known
    if known is None:
        return more
    if isinstance(more, list):
        known.extend(more)
        return known
    if isinstance(more, dict):
        for name, value in more.items():
            known[name] = _longer(known.get(name), value)
        return known
    return more


def _complete(choice: Mapping[str, Any]) -> dict[str, Any]:
    complete: dict[str, Any] = _finished(choice)
    if (message := complete.get("message")) is not None:
        # A stream may never say who speaks, nor a text that is empty.
        message.setdefault("role", "assistant")
        message["content"] = message.get("content") or (None if message.get("tool_calls") else "")
    return complete


def _finished(value: Any) -> Any:
    if not isinstance(value, (list, dict)):
        return value
    if isinstance(value, _Text):
        return "".join(value)
    if isinstance(value, _Numbered):
        items = (item for _, item in sorted(value.items()))
        return [
            {name: _finished(of) for name, of in item.items() if name != "index"} for item in items
        ]
    if isinstance(value, dict):
        return {name: _finished(of) for name, of in value.items()}
    return value

"""The two other changes to an engine's answer that are ours: the model's name, and usage unasked."""

import re

import orjson

# Quotes inside a text are escaped: where this matches, there is a field of that name.
_MODEL = re.compile(rb'("model"\s*:\s*)"(?:[^"\\]|\\.)*"')


def renamed(answer: bytes, name: str) -> bytes:
    """The answer under the model's public name; every other byte as it is."""
    said = orjson.dumps(name)
    if answer.startswith(b'"model":' + said, answer.find(b'"model"')):
        return answer
    return _MODEL.sub(lambda found: found[1] + said, answer, count=1)


class Renamed:
    def __init__(self, name: str) -> None:
        self._name = name
        self._right = b'"model":' + orjson.dumps(name)

    def feed(self, event: bytes) -> bytes:
        first = event.find(b'"model"')
        if first == -1 or event.startswith(self._right, first):
            return event
        return renamed(event, self._name)

    def end(self) -> bytes:
        return b""


class UsageStripped:
    """Takes out the one event that came of our own wish: usage, without any choices."""

    def feed(self, event: bytes) -> bytes:
        # Faster than `in`, which makes an exception on its way.
        return b"" if event.find(b'"prompt_tokens"') != -1 and _is_only_usage(event) else event

    def end(self) -> bytes:
        return b""


def _is_only_usage(event: bytes) -> bool:
    try:
        chunk = orjson.loads(event.removeprefix(b"data:"))
        return bool(chunk["choices"] == [] and chunk["usage"])
    except (ValueError, LookupError, TypeError):
        return False

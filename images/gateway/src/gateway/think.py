"""`<think>` in an answer's text told apart as `reasoning_content`, wherever the stream is cut."""

from collections.abc import Mapping
from typing import Any, Literal

import orjson

_OPEN = "<think>"
_CLOSE = "</think>"

_State = Literal["before", "inside", "gap", "after"]


class Splitter:
    """One answer's text. `opened`: the prompt ended in `<think>`, the answer begins inside."""

    def __init__(self, *, opened: bool) -> None:
        self._opened = opened
        self._state: _State = "before"
        self._held = ""

    @property
    def is_over(self) -> bool:
        """True when all that may still come is content."""
        return self._state == "after"

    def feed(self, text: str) -> tuple[str, str]:
        """Returns the reasoning and the content that are sure by now."""
        self._held += text
        reasoning = content = ""
        if self._state == "before":
            self._begin()
        if self._state == "inside":
            reasoning = self._reason()
        if self._state == "gap":
            self._held = self._held.lstrip("\r\n")
            if self._held:
                self._state = "after"
        if self._state == "after":
            content, self._held = self._held, ""
        return reasoning, content

    def end(self) -> tuple[str, str]:
        """What was held back, now that nothing follows."""
        held, self._held = self._held, ""
        inside = self._state == "inside" or (self._state == "before" and self._opened)
        self._state = "after"
        return (held, "") if inside else ("", held)

    def _begin(self) -> None:
        said = self._held.lstrip()
        # Empty, or the beginning of the mark: it may still come.
        if _OPEN.startswith(said):
            return
        if said.startswith(_OPEN):
            self._held = said.removeprefix(_OPEN).lstrip("\r\n")
            self._state = "inside"
            return
        self._state = "inside" if self._opened else "after"

    def _reason(self) -> str:
        before, closed, rest = self._held.partition(_CLOSE)
        if closed:
            self._state, self._held = "gap", rest
            return before
        kept = _beginning_of(_CLOSE, self._held)
        sure = len(self._held) - kept
        reasoning, self._held = self._held[:sure], self._held[sure:]
        return reasoning


class ThinkSplit:
    """A filter of an OpenAI stream. Events pass as they are once every answer is past its thinking."""

    def __init__(self, *, opened: bool, answers: int) -> None:
        self._opened = opened
        self._answers = answers
        self._splitters: dict[int, Splitter] = {}
        self._over = False

    def feed(self, event: bytes) -> bytes:
        if self._over or not event.startswith(b"data:"):
            return event
        try:
            chunk = orjson.loads(event[5:])
            choices = [self._split(choice) for choice in chunk["choices"]]
            self._over = self._is_over()
        except (ValueError, LookupError, TypeError, AttributeError):
            # [DONE], an error, or nothing that this knows.
            return event
        first = [reasoned for reasoned, _ in choices if reasoned]
        second = [rest for _, rest in choices if rest]
        events = [{**chunk, "choices": first}] if first else []
        if second or not chunk["choices"] or chunk.get("usage"):
            events.append({**chunk, "choices": second})
        return b"".join(b"data: " + orjson.dumps(each) + b"\n\n" for each in events)

    def end(self) -> bytes:
        return b""

    def _is_over(self) -> bool:
        splitters = self._splitters.values()
        return len(splitters) == self._answers and all(each.is_over for each in splitters)

    def _split(
        self, choice: Mapping[str, Any]
    ) -> tuple[dict[str, Any] | None, Mapping[str, Any] | None]:
        """The choice as reasoning and as the rest of it, each None where there is nothing of it."""
        delta = choice["delta"]
        number = choice.get("index", 0)
        splitter = self._splitters.setdefault(number, Splitter(opened=self._opened))
        reasoning, content = splitter.feed(delta.get("content") or "")
        if choice.get("finish_reason") is not None or delta.get("tool_calls"):
            last = splitter.end()
            reasoning, content = reasoning + last[0], content + last[1]
        reasoned = None
        if reasoning:
            said = {"reasoning_content": reasoning}
            role = {"role": delta["role"]} if "role" in delta else {}
            reasoned = {**choice, "delta": {**role, **said}, "finish_reason": None}
        kept = {name: value for name, value in delta.items() if name != "content"}
        if content or delta.get("content") == "":
            kept["content"] = content
        rest = {**choice, "delta": kept}
        says = any(kept.values()) or choice.get("finish_reason") is not None
        return reasoned, rest if says or not delta.get("content") else None


def split_whole(message: Mapping[str, Any], *, opened: bool) -> Mapping[str, Any]:
    """The same for a whole message; the engine's own `reasoning_content` is left alone."""
    text = message.get("content")
    if not isinstance(text, str) or message.get("reasoning_content"):
        return message
    splitter = Splitter(opened=opened)
    (reasoning, content), last = splitter.feed(text), splitter.end()
    reasoning, content = reasoning + last[0], content + last[1]
    if content == text:
        return message
    # Models often think nothing at all: the marks around that are no answer either.
    thought = {"reasoning_content": reasoning} if reasoning else {}
    return {**message, **thought, "content": content}


def _beginning_of(mark: str, text: str) -> int:
    """How many of the last characters of `text` may be the beginning of `mark`."""
    longest = min(len(mark) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)

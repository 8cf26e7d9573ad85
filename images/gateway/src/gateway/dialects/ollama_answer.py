"""An engine's answer in Ollama's words: whole, or one JSON object a line."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import orjson

from gateway.dialects.engine_errors import arguments_in, choice_in, chunk_in, is_done
from gateway.engine_refusals import engine_refused
from gateway.errors import Voice

# Line ends to many readers of lines, and raw in JSON: Ollama itself escapes them too.
_LINE_ENDS = (
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
    (b"\xc2\x85", b"\\u0085"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Of /api/chat or of /api/generate."""

    model: str
    is_chat: bool

    def said(
        self, text: str, thinking: str = "", calls: list[dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        named = {"model": self.model, "created_at": datetime.now(timezone.utc).isoformat()}
        thought = {"thinking": thinking} if thinking else {}
        if not self.is_chat:
            return {**named, "response": text, **thought}
        called = {"tool_calls": calls} if calls else {}
        return {**named, "message": {"role": "assistant", "content": text, **thought, **called}}


def line(said: Mapping[str, Any]) -> bytes:
    written = orjson.dumps(said)
    for end, escaped in _LINE_ENDS:
        written = written.replace(end, escaped)
    return written + b"\n"


def whole_of(answer: Mapping[str, Any], shape: Shape, read_s: float) -> dict[str, Any]:
    """Of the time that it took, how much was for the prompt is not known."""
    took_ns = _ns_since(read_s)
    choice = answer["choices"][0]
    message = choice.get("message") or {"content": choice.get("text")}
    calls = [_call(call["function"]) for call in message.get("tool_calls") or ()]
    said = shape.said(message.get("content") or "", message.get("reasoning_content") or "", calls)
    return {
        **said,
        **_logprobs(choice),
        "done": True,
        "done_reason": _reason(choice),
        "total_duration": took_ns,
        **_counts(answer.get("usage") or {}),
        "eval_duration": took_ns,
    }


class Lines:
    """A filter: the engine's chunks in, lines out. The last one follows the engine's [DONE]."""

    def __init__(self, shape: Shape, voice: Voice, read_s: float) -> None:
        self._shape = shape
        self._voice = voice
        self._read_s = read_s
        self._began_s = time.monotonic()
        self._calls: dict[int, dict[str, str]] = {}
        self._reason = "stop"
        self._usage: Mapping[str, Any] = {}
        self._over = False

    def feed(self, event: bytes) -> bytes:
        return b"" if self._over else b"".join(self._lines(event))

    def end(self) -> bytes:
        return b""

    def _lines(self, event: bytes) -> Iterator[bytes]:
        if is_done(event):
            self._over = True
            yield from self._last()
            return
        chunk = chunk_in(event)
        if chunk is None:
            return
        if "error" in chunk:
            self._over = True
            yield self._voice.event(engine_refused(500, orjson.dumps(chunk)))
            return
        self._usage = chunk.get("usage") or self._usage
        if choice := choice_in(chunk):
            yield from self._said(choice)

    def _said(self, choice: Mapping[str, Any]) -> Iterator[bytes]:
        delta = choice.get("delta") or {"content": choice.get("text")}
        for call in delta.get("tool_calls") or ():
            self._add(call)
        text, thought = delta.get("content") or "", delta.get("reasoning_content") or ""
        if text or thought:
            said = self._shape.said(text, thought)
            yield line({**said, **_logprobs(choice), "done": False})
        if choice.get("finish_reason"):
            self._reason = _reason(choice)

    def _add(self, call: Mapping[str, Any]) -> None:
        """The engine sends calls in pieces, Ollama whole."""
        function = call.get("function") or {}
        known = self._calls.setdefault(call.get("index", 0), {"name": "", "arguments": ""})
        known["name"] += function.get("name") or ""
        known["arguments"] += function.get("arguments") or ""

    def _last(self) -> Iterator[bytes]:
        if self._calls:
            calls = [_call(call) for call in self._calls.values()]
            yield line({**self._shape.said("", calls=calls), "done": False})
        yield line(
            {
                **self._shape.said(""),
                "done": True,
                "done_reason": self._reason,
                "total_duration": _ns_since(self._read_s),
                **_counts(self._usage),
                "eval_duration": _ns_since(self._began_s),
            }
        )


def _call(function: Mapping[str, Any]) -> dict[str, Any]:
    return {"function": {"name": function["name"], "arguments": arguments_in(function)}}


def _ns_since(moment_s: float) -> int:
    return int((time.monotonic() - moment_s) * 1e9)


def _reason(choice: Mapping[str, Any]) -> str:
    return "length" if choice.get("finish_reason") == "length" else "stop"


def _logprobs(choice: Mapping[str, Any]) -> dict[str, Any]:
    found = (choice.get("logprobs") or {}).get("content")
    return {"logprobs": found} if found else {}


def _counts(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "prompt_eval_count": usage.get("prompt_tokens") or 0,
        "eval_count": usage.get("completion_tokens") or 0,
    }

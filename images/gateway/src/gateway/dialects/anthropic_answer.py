"""An engine's answer as a message of Anthropic's API, whole or as a stream of its events."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.dialects.engine_errors import arguments_in, choice_in, chunk_in, is_done
from gateway.engine_refusals import engine_refused
from gateway.errors import Voice

_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def message_of(answer: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The engine's whole answer."""
    choice = answer["choices"][0]
    said = choice.get("message") or {}
    return {
        **_message(answer, model),
        "content": list(_blocks(said)),
        **_stop(choice),
        "usage": _usage(answer.get("usage") or {}),
    }


class MessageStream:
    """A filter: chat chunks in, message events out; the engine's comments pass."""

    def __init__(self, model: str, prompt_tokens_estimate: int, voice: Voice) -> None:
        self._model = model
        self._estimate = prompt_tokens_estimate
        self._voice = voice
        self._blocks = 0
        self._open: str | None = None
        self._calls: dict[int, int] = {}
        self._stop: dict[str, Any] = {"stop_reason": "end_turn", "stop_sequence": None}
        self._usage: dict[str, Any] = {"output_tokens": 0}
        self._begun = self._over = False

    def feed(self, event: bytes) -> bytes:
        if event.startswith(b":"):
            return event
        return b"".join(_said(each) for each in self._events(event)) if not self._over else b""

    def end(self) -> bytes:
        return b""

    def _events(self, event: bytes) -> Iterator[dict[str, Any] | bytes]:
        if is_done(event):
            self._over = True
            yield from self._begin({})
            yield from self._close()
            yield {"type": "message_delta", "delta": self._stop, "usage": self._usage}
            yield {"type": "message_stop"}
            return
        chunk = chunk_in(event)
        if chunk is None:
            return
        if "error" in chunk:
            self._over = True
            yield self._voice.event(engine_refused(500, orjson.dumps(chunk)))
            return
        yield from self._begin(chunk)
        if chunk.get("usage"):
            self._usage = _usage(chunk["usage"])
        if choice := choice_in(chunk):
            yield from self._delta(choice.get("delta") or {})
            if choice.get("finish_reason"):
                self._stop = _stop(choice)

    def _begin(self, chunk: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        if self._begun:
            return
        self._begun = True
        usage = {"input_tokens": self._estimate, "output_tokens": 0}
        stop = {"stop_reason": None, "stop_sequence": None}
        message = {**_message(chunk, self._model), "content": [], **stop, "usage": usage}
        yield {"type": "message_start", "message": message}

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        if thought := delta.get("reasoning_content"):
            yield from self._switch("thinking", _thinking(""))
            yield self._piece({"type": "thinking_delta", "thinking": thought})
        if text := delta.get("content"):
            yield from self._switch("text", {"type": "text", "text": ""})
            yield self._piece({"type": "text_delta", "text": text})
        for call in delta.get("tool_calls") or ():
            yield from self._call(call)

    def _call(self, call: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        number, function = call.get("index", 0), call.get("function") or {}
        if number not in self._calls:
            named = {"id": call.get("id"), "name": function.get("name")}
            begin: dict[str, Any] = {"type": "tool_use", **named, "input": {}}
            yield from self._switch(f"call {number}", begin)
            self._calls[number] = self._blocks - 1
        if arguments := function.get("arguments"):
            part = {"type": "input_json_delta", "partial_json": arguments}
            yield {"type": "content_block_delta", "index": self._calls[number], "delta": part}

    def _switch(self, block: str, begin: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        if self._open == block:
            return
        yield from self._close()
        self._open = block
        yield {"type": "content_block_start", "index": self._blocks, "content_block": begin}
        self._blocks += 1

    def _piece(self, delta: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._blocks - 1, "delta": delta}

    def _close(self) -> Iterator[dict[str, Any]]:
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop", "index": self._blocks - 1}


def _said(event: Mapping[str, Any] | bytes) -> bytes:
    if isinstance(event, bytes):
        return event
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), orjson.dumps(event))


def _message(answer: Mapping[str, Any], model: str) -> dict[str, Any]:
    number = str(answer.get("id") or "unknown")
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model}


def _blocks(said: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if thought := said.get("reasoning_content"):
        yield _thinking(thought)
    if text := said.get("content"):
        yield {"type": "text", "text": text}
    for call in said.get("tool_calls") or ():
        function = call["function"]
        use = {"id": call.get("id"), "name": function["name"], "input": arguments_in(function)}
        yield {"type": "tool_use", **use}


def _thinking(text: str) -> dict[str, Any]:
    # Only Anthropic's own servers sign, and only they check.
    return {"type": "thinking", "thinking": text, "signature": ""}


def _stop(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Engines that tell which text stopped them call it one of two names."""
    reason = _STOP_REASONS.get(str(choice.get("finish_reason")), "end_turn")
    matched = choice.get("matched_stop", choice.get("stop_reason"))
    if reason == "end_turn" and isinstance(matched, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": matched}
    return {"stop_reason": reason, "stop_sequence": None}


def _usage(found: Mapping[str, Any]) -> dict[str, Any]:
    """Anthropic counts cached tokens apart from the others."""
    cached = (found.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return {
        "input_tokens": (found.get("prompt_tokens") or 0) - cached,
        "cache_read_input_tokens": cached,
        "output_tokens": found.get("completion_tokens") or 0,
    }

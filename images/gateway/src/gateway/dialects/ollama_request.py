"""Requests of Ollama's API as ones to the engine."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.errors import Refused
from gateway.request_errors import unsupported

_OPTIONS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
)
NAMES = {
    "max_tokens": "num_predict",
    "response_format": "format",
    "chat_template_kwargs": "think",
}
"""What Ollama calls the fields that it has too."""


def chat_of(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """`parsed` has been checked."""
    asked = {"messages": list(_messages(parsed["messages"])), **_common(parsed)}
    if parsed.get("tools"):
        asked["tools"] = parsed["tools"]
    return asked


def generation_of(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """One question and its answer: a chat, too, unless the prompt is the model's raw input."""
    for name in ("suffix", "template"):
        if parsed.get(name):
            raise Refused(unsupported(name))
    if parsed.get("raw"):
        return {"prompt": parsed["prompt"], **_common(parsed)}
    messages = []
    if parsed.get("system"):
        messages.append({"role": "system", "content": parsed["system"]})
    question = {"role": "user", "content": parsed["prompt"], "images": parsed.get("images")}
    return chat_of({**parsed, "messages": [*messages, question]})


def plain_name(name: str) -> str:
    """Ollama's clients may name a model with the tag that it has unless told otherwise."""
    return name.removesuffix(":latest")


def _common(parsed: Mapping[str, Any]) -> dict[str, Any]:
    options = parsed.get("options") or {}
    asked = {name: options[name] for name in _OPTIONS if options.get(name) is not None}
    asked |= {"model": plain_name(parsed["model"]), "stream": parsed.get("stream") is not False}
    # Negative numbers are its ways to say: without end.
    if (options.get("num_predict") or -1) > 0:
        asked["max_tokens"] = options["num_predict"]
    if options.get("repeat_penalty") is not None:
        # Engines know it by the one name or the other.
        asked["repeat_penalty"] = asked["repetition_penalty"] = options["repeat_penalty"]
    if parsed.get("logprobs"):
        asked["logprobs"] = True
        if parsed.get("top_logprobs"):
            asked["top_logprobs"] = parsed["top_logprobs"]
    return asked | _format(parsed.get("format")) | _think(parsed.get("think"))


def _format(asked: Any) -> dict[str, Any]:
    if not asked:
        return {}
    if asked == "json":
        return {"response_format": {"type": "json_object"}}
    schema = {"name": "format", "schema": asked}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _think(asked: Any) -> dict[str, Any]:
    if asked is None:
        return {}
    thinks = asked is not False
    # One of the two names is what the model's own template asks for; it ignores the other.
    found: dict[str, Any] = {
        "chat_template_kwargs": {"thinking": thinks, "enable_thinking": thinks}
    }
    if isinstance(asked, str):
        found["reasoning_effort"] = asked
    return found


def _messages(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Ollama's calls have no ids: results belong to the calls before them in their order."""
    waiting: list[str] = []
    made = 0
    for message in messages:
        said: dict[str, Any] = {"role": message["role"], "content": _content(message)}
        if message.get("thinking"):
            said["reasoning_content"] = message["thinking"]
        if calls := message.get("tool_calls"):
            waiting = [f"call_{number}" for number in range(made, made + len(calls))]
            made += len(calls)
            said["tool_calls"] = [_call(*pair) for pair in zip(waiting, calls, strict=True)]
        if message["role"] == "tool":
            said["tool_call_id"] = waiting.pop(0) if waiting else f"call_{made}"
        yield said


def _content(message: Mapping[str, Any]) -> Any:
    text = message.get("content") or ""
    if not (images := message.get("images")):
        return text
    pictures = [
        {"type": "image_url", "image_url": {"url": f"data:{_kind(image)};base64,{image}"}}
        for image in images
    ]
    return [{"type": "text", "text": text}, *pictures]


def _kind(image: str) -> str:
    """Told by the first bytes, which base64 writes always alike."""
    return "image/png" if image.startswith("iVBORw0KGgo") else "image/jpeg"


def _call(number: str, call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = orjson.dumps(function.get("arguments") or {}).decode()
    told = {"name": function["name"], "arguments": arguments}
    return {"id": number, "type": "function", "function": told}

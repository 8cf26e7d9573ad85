"""A request of Anthropic's Messages API as one of OpenAI's chat."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.chat_template import text_of

_AS_THEY_ARE = ("model", "max_tokens", "temperature", "top_p", "top_k", "stream")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_of(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """`parsed` has been checked."""
    asked = {name: parsed[name] for name in _AS_THEY_ARE if parsed.get(name) is not None}
    asked["messages"] = list(_messages(parsed))
    if parsed.get("tools"):
        asked["tools"] = [_tool(tool) for tool in parsed["tools"]]
    if parsed.get("tool_choice"):
        asked |= _tool_choice(parsed["tool_choice"])
    if parsed.get("stop_sequences"):
        asked["stop"] = parsed["stop_sequences"]
    if form := (parsed.get("output_config") or {}).get("format"):
        schema = {"name": "format", "schema": form["schema"]}
        asked["response_format"] = {"type": "json_schema", "json_schema": schema}
    if thinking := (parsed.get("thinking") or {}).get("type"):
        thinks = thinking != "disabled"
        # One of the two names is what the model's own template asks for; it ignores the other.
        asked["chat_template_kwargs"] = {"thinking": thinks, "enable_thinking": thinks}
    return asked


def _messages(parsed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if told := text_of(parsed.get("system")):
        yield {"role": "system", "content": told}
    for message in parsed["messages"]:
        role, content = message["role"], message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if role == "system":
            yield {"role": role, "content": text_of(content)}
            continue
        if role == "assistant":
            yield _assistant(blocks)
            continue
        results = [block for block in blocks if block["type"] == "tool_result"]
        yield from (_tool_result(block) for block in results)
        if said := [_part(block) for block in blocks if block["type"] != "tool_result"]:
            yield {"role": role, "content": _plain(said)}


def _assistant(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    thought = "".join(block["thinking"] for block in blocks if block["type"] == "thinking")
    calls = [_call(block) for block in blocks if block["type"] == "tool_use"]
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = orjson.dumps(block.get("input") or {}).decode()
    function = {"name": block["name"], "arguments": arguments}
    return {"id": block["id"], "type": "function", "function": function}


def _tool_result(block: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "role": "tool",
        "tool_call_id": block["tool_use_id"],
        "content": text_of(block.get("content")),
    }


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    if block["type"] == "image":
        return {"type": "image_url", "image_url": {"url": _url(block["source"])}}
    return {"type": "text", "text": block["text"]}


def _url(source: Mapping[str, Any]) -> str:
    if source["type"] == "url":
        return str(source["url"])
    return f"data:{source['media_type']};base64,{source['data']}"


def _plain(parts: list[dict[str, Any]]) -> Any:
    """Many engines and templates know content only as text: parts are for what is more."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": tool["name"], "parameters": tool["input_schema"]}
    if tool.get("description"):
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _tool_choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    if choice["type"] == "tool":
        asked: Any = {"type": "function", "function": {"name": choice["name"]}}
    else:
        asked = _CHOICES[choice["type"]]
    if choice.get("disable_parallel_tool_use"):
        return {"tool_choice": asked, "parallel_tool_calls": False}
    return {"tool_choice": asked}

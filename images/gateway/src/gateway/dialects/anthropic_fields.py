"""What a request of Anthropic's API may hold, down to the blocks of its messages."""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

from gateway.errors import Refused
from gateway.fields import (
    FLAG,
    NUMBER,
    OBJECT,
    TEXT,
    Fields,
    Kind,
    either,
    just,
    list_of,
    record,
    whole_number,
)
from gateway.request_errors import unsupported

_TEXT_BLOCK = record({"type": just("text"), "text": TEXT})
_TEXTS = either(TEXT, list_of(_TEXT_BLOCK, "text blocks"))
_SOURCE = either(
    record({"type": just("base64"), "media_type": TEXT, "data": TEXT}),
    record({"type": just("url"), "url": TEXT}),
)
_USER_BLOCKS = (
    _TEXT_BLOCK,
    record({"type": just("image"), "source": _SOURCE}),
    record({"type": just("tool_result"), "tool_use_id": TEXT}, {"content": _TEXTS}),
)
_ASSISTANT_BLOCKS = (
    _TEXT_BLOCK,
    record({"type": just("tool_use"), "id": TEXT, "name": TEXT}, {"input": OBJECT}),
    record({"type": just("thinking"), "thinking": TEXT}),
    record({"type": just("redacted_thinking")}),
)
_BLOCK_TYPES = ("text", "image", "tool_result", "tool_use", "thinking", "redacted_thinking")


def _message(roles: Kind, blocks: tuple[Kind, ...]) -> Kind:
    block = reduce(either, blocks)
    return record({"role": roles, "content": either(TEXT, list_of(block, "blocks"))})


_MESSAGES = list_of(
    either(
        either(
            _message(just("user"), _USER_BLOCKS),
            _message(just("assistant"), _ASSISTANT_BLOCKS),
        ),
        _message(just("system"), (_TEXT_BLOCK,)),
    ),
    "messages of this API",
)
_PROMPT = {
    "model": TEXT,
    "messages": _MESSAGES,
    "system": _TEXTS,
    "tools": list_of(
        record({"name": TEXT, "input_schema": OBJECT}, {"description": TEXT}), "tools"
    ),
    "tool_choice": either(
        record({"type": just("auto", "any", "none")}),
        record({"type": just("tool"), "name": TEXT}),
    ),
    "thinking": record({"type": just("enabled", "disabled", "adaptive")}),
    "output_config": record(
        {}, {"format": record({"type": just("json_schema"), "schema": OBJECT})}
    ),
}
MESSAGES_FIELDS = Fields(
    {
        **_PROMPT,
        "max_tokens": whole_number(1),
        "stop_sequences": list_of(TEXT, "texts"),
        "stream": FLAG,
        "temperature": NUMBER,
        "top_p": NUMBER,
        "top_k": whole_number(0),
    },
    required=("model", "messages", "max_tokens"),
)
COUNT_FIELDS = Fields(_PROMPT, required=("model", "messages"))


def check(parsed: Mapping[str, Any], fields: Fields) -> None:
    """What Anthropic's own servers have and a chat has not is refused by its own name."""
    for kind in _foreign(parsed):
        raise Refused(unsupported(kind))
    fields.check(parsed)


def _foreign(parsed: Mapping[str, Any]) -> Iterator[str]:
    for message in _objects(parsed.get("messages")):
        for block in _objects(message.get("content")):
            kind = block.get("type")
            if isinstance(kind, str) and kind not in _BLOCK_TYPES:
                yield kind
            if kind == "tool_result":
                yield from _foreign_in_result(block)
    for tool in _objects(parsed.get("tools")):
        kind = tool.get("type") or "custom"
        if isinstance(kind, str) and kind != "custom":
            yield kind


def _foreign_in_result(block: Mapping[str, Any]) -> Iterator[str]:
    """A chat's tools answer in text."""
    for part in _objects(block.get("content")):
        kind = part.get("type")
        if isinstance(kind, str) and kind != "text":
            yield f"{kind} in a tool_result"


def _objects(found: object) -> Iterator[dict[str, Any]]:
    if isinstance(found, list):
        yield from (each for each in found if isinstance(each, dict))

"""The engine's side of a talk, for tests of what other APIs make of it."""

import json
from collections.abc import Sequence
from typing import Any

from gateway.filters import Chain, Filter


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **more}
    said = {"id": "c1", "object": "chat.completion.chunk", "model": "paced", "choices": [choice]}
    return b"data: " + json.dumps(said, ensure_ascii=False).encode() + b"\n\n"


def call(index: int, arguments: str, name: str | None = None) -> dict[str, Any]:
    begin = {"id": f"call_{index}", "type": "function"} if name else {}
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    return {"tool_calls": [{"index": index, **begin, "function": function}]}


USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,'
    b'"prompt_tokens_details":{"cached_tokens":4}}}\n\n'
)
DONE = b"data: [DONE]\n\n"


def through(filters: Sequence[Filter], stream: bytes, size: int) -> bytes:
    """The stream in pieces of `size` bytes: characters and events are cut anywhere."""
    chain = Chain(filters)
    parts = (stream[at : at + size] for at in range(0, len(stream), size))
    return b"".join(chain.feed(part) for part in parts) + chain.end()

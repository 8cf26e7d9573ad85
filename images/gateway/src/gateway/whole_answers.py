"""Answers that clients want whole are asked of the engine as streams.

Only of a stream is it known when it began, that it goes on, and what it cost if it is left early.
"""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from gateway.engine_request import EngineRequest
from gateway.policy import Capabilities

# Quotes inside a text are escaped: where this matches, there is a field of that name.
_NO_STREAM = re.compile(rb'("stream"\s*:\s*)(?:false|null)\b')


def stream_changes(asked: EngineRequest, can: Capabilities) -> dict[str, Any]:
    """What to change in a request: the books want the usage of every stream, its client or not."""
    if not asked.stream and not _may_be_streamed(asked.parsed, can):
        return {}
    options = asked.parsed.get("stream_options") or {}
    return {"stream": True, "stream_options": {**options, "include_usage": True}}


def with_stream_on(body: bytes) -> bytes | None:
    """The body with its `stream` on and every other byte as it is; None where that takes more."""
    if body.count(b'"stream"') != 1:
        return None
    on, times = _NO_STREAM.subn(rb"\1true", body)
    return on if times else None


def unstreamed(asked: EngineRequest) -> EngineRequest:
    """The request as its client put it, for an engine that can't stream this one."""
    kept = {name: value for name, value in asked.parsed.items() if name != "stream_options"}
    parsed = {**kept, "stream": False}
    return asked._replace(parsed=parsed, body=orjson.dumps(parsed), assembled=False)


def _may_be_streamed(parsed: Mapping[str, Any], can: Capabilities) -> bool:
    # Which of several is the best is known only when all are complete.
    return can.whole_as_stream and (parsed.get("best_of") or 1) == 1

"""Refuses by name what this profile's engine can't do, before the request waits for it."""

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.engine_request import EngineRequest
from gateway.errors import Refused
from gateway.policy import Capabilities
from gateway.request_errors import unsupported


def refuse_unsupported(asked: EngineRequest, can: Capabilities) -> None:
    for name in _beyond(asked.parsed, can):
        raise Refused(unsupported(asked.names.get(name, name)))


def _beyond(parsed: Mapping[str, Any], can: Capabilities) -> Iterator[str]:
    if not can.tools:
        yield from ("tools",) if parsed.get("tools") else ()
        yield from (
            ("tool_choice",) if parsed.get("tool_choice") not in (None, "none", "auto") else ()
        )
    if not can.json_mode:
        kind = (parsed.get("response_format") or {}).get("type", "text")
        yield from () if kind == "text" else ("response_format",)
    if not can.logprobs:
        # For completions 0 asks for those of the chosen tokens, and is not the same as false.
        if (asks := parsed.get("logprobs")) is not None and asks is not False:
            yield "logprobs"
        yield from ("top_logprobs",) if parsed.get("top_logprobs") else ()
    if not can.n:
        yield from (name for name in ("n", "best_of") if (parsed.get(name) or 1) != 1)

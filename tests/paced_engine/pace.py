"""How one answer is paced: what its request says over PACED_* variables over defaults."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

_PACED = "paced: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    model: str = "paced"
    prefill_s: float = 0.0
    tick_s: float = 0.05
    ticks: int = 8
    pad_bytes: int = 0
    """Bulk added to every tick."""
    cut_at_tick: int | None = None
    """The connection is dropped when this many ticks were sent; at 0 before the first byte."""
    says_done: bool = True
    streams: bool = True
    """False: a stream is refused, as engines do where they have something only as a whole."""
    ignores_leaving: bool = False
    """Goes on without its client, as engines do until they look; an abort by id ends it at once."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw_b64: list[str] | None = None
    """Sent one by one in place of the ticks, exactly as they are."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Pace":
        return cls(
            model=environ.get("MODEL_NAME", "paced"),
            prefill_s=float(environ.get("PACED_PREFILL_S", "0")),
            tick_s=float(environ.get("PACED_TICK_S", "0.05")),
            ticks=int(environ.get("PACED_TICKS", "8")),
        )

    def over(self, body: bytes) -> tuple["Pace", bool]:
        """Returns the pace that `body` asks for, and whether for a stream. Or ValueError."""
        request: dict[str, Any] = json.loads(body)
        asked: dict[str, Any] = _in_words(request)
        if unknown := set(asked) - {known.name for known in fields(self)}:
            message = f"unknown pace {unknown}"
            raise ValueError(message)
        return replace(self, **asked), bool(request.get("stream", False))


def _in_words(request: Mapping[str, Any]) -> dict[str, Any]:
    """The prompt or the last message begins with it: requests have no place for more fields."""
    messages = request.get("messages") or [{"content": request.get("prompt")}]
    content = messages[-1].get("content") if isinstance(messages[-1], dict) else None
    if not isinstance(content, str) or not content.startswith(_PACED):
        return {}
    found: dict[str, Any]
    found, _ = json.JSONDecoder().raw_decode(content.removeprefix(_PACED))
    return found

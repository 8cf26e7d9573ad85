"""How much a request may generate: clamped to the profile's, refused where the context is too short.

Counting is for those near the limit. No token is shorter than a byte, so that a short body surely
fits, and only what may not is counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.counting import Counter, counter_of
from gateway.engine_request import EngineRequest, prompt_field
from gateway.errors import Refused
from gateway.policy import Policy
from gateway.request_errors import context_length_exceeded

_LLAMACPPS = "n_predict"
"""llama.cpp's own word, which it puts above the others; below zero it is no end at all."""
CAPS = ("max_tokens", "max_completion_tokens", _LLAMACPPS)
CAP_UNKNOWN = 1024
"""What a request is expected to generate when neither it nor the profile sets an end."""

# What a chat template says on its own: once, and around each message.
_TEMPLATE_BYTES = 512
_MESSAGE_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    changes: Mapping[str, int] = field(default_factory=dict)
    cap: int = CAP_UNKNOWN
    prompt_tokens: int | None = None
    """None where it surely fits and was not counted."""


def length_of(asked: EngineRequest, parsed: Mapping[str, Any], policy: Policy) -> Length:
    """`parsed`: the request as the engine will get it, but for what this decides."""
    most = policy.model.max_tokens
    named = {name: int(parsed[name]) for name in CAPS if parsed.get(name) is not None}
    if named.get(_LLAMACPPS, 0) < 0:
        del named[_LLAMACPPS]
        named |= {} if most is None else {_LLAMACPPS: most}
    if most is not None:
        named = {name: min(value, most) for name, value in named.items()}
    wanted = min(named.values()) if named else None
    prompt_tokens = _counted(asked, parsed, policy, wanted if wanted is not None else most or 1)
    if prompt_tokens is not None and policy.model.context_tokens is not None:
        room = policy.model.context_tokens - prompt_tokens
        if room < max(wanted or 1, 1):
            param = prompt_field(parsed)
            raise Refused(
                context_length_exceeded(
                    asked.names.get(param, param),
                    context=policy.model.context_tokens,
                    prompt=prompt_tokens,
                    granted=wanted or 0,
                )
            )
        # Who asks for no number gets what there is.
        most = None if most is None else min(most, room)
    if not named and most is not None:
        named = {"max_tokens": most}
    cap = min(named.values()) if named else CAP_UNKNOWN
    return Length(changes=named, cap=cap, prompt_tokens=prompt_tokens)


def count_prompt(counter: Counter, parsed: Mapping[str, Any], *, enough: int) -> int:
    if "prompt" in parsed:
        return counter.count_prompt(parsed["prompt"], enough=enough)
    return counter.count_chat(parsed, enough=enough)


def _counted(
    asked: EngineRequest, parsed: Mapping[str, Any], policy: Policy, wanted: int
) -> int | None:
    context = policy.model.context_tokens
    if context is None:
        return None
    size = len(asked.body or b"") + len((policy.defaults.system_message or "").encode())
    around = _TEMPLATE_BYTES + _MESSAGE_BYTES * len(parsed.get("messages") or ())
    # Templates may lay tools out at more length than they came in.
    if size + around + wanted <= context and not parsed.get("tools"):
        return None
    counter = counter_of(policy)
    return None if counter is None else count_prompt(counter, parsed, enough=4 * context)

"""How much a request may generate: clamped to the profile's, refused where the context is too short.

Counting is for those near the limit. No token is shorter than a byte, so that a short body surely
fits, and only what may not is counted.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

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


class Length(NamedTuple):
    changes: Mapping[str, int]
    cap: int
    prompt_tokens: int | None
    """None where it surely fits and was not counted."""


def length_of(
    asked: EngineRequest, parsed: Mapping[str, Any], policy: Policy, prompt_tokens: int | None
) -> Length:
    """`parsed`: the request as the engine will get it, but for what this decides.

    `prompt_tokens`: None where nobody has counted.
    """
    most = policy.model.max_tokens
    named = _named(parsed, most)
    wanted = min(named.values()) if named else None
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


def may_not_fit(asked: EngineRequest, parsed: Mapping[str, Any], policy: Policy) -> bool:
    """Only then is it worth counting; for nothing where no context is known."""
    context, most = policy.model.context_tokens, policy.model.max_tokens
    if context is None:
        return False
    wanted = min(_named(parsed, most).values(), default=most or 1)
    size = len(asked.body or b"") + len((policy.defaults.system_message or "").encode())
    around = _TEMPLATE_BYTES + _MESSAGE_BYTES * len(parsed.get("messages") or ())
    # Templates may lay tools out at more length than they came in.
    return size + around + wanted > context or bool(parsed.get("tools"))


def counted_by_file(parsed: Mapping[str, Any], policy: Policy) -> int | None:
    context, counter = policy.model.context_tokens, counter_of(policy)
    if counter is None or context is None:
        return None
    return count_prompt(counter, parsed, enough=4 * context)


def count_prompt(counter: Counter, parsed: Mapping[str, Any], *, enough: int) -> int:
    if "prompt" in parsed:
        return counter.count_prompt(parsed["prompt"], enough=enough)
    return counter.count_chat(parsed, enough=enough)


def _named(parsed: Mapping[str, Any], most: int | None) -> dict[str, int]:
    """The ends that the request sets, none beyond the profile's most."""
    named = {name: int(parsed[name]) for name in CAPS if parsed.get(name) is not None}
    if named.get(_LLAMACPPS, 0) < 0:
        del named[_LLAMACPPS]
        named |= {} if most is None else {_LLAMACPPS: most}
    return named if most is None else {name: min(value, most) for name, value in named.items()}

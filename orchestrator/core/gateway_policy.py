"""What the gateway is told about the model that serves: policy.json, as plain values for JSON."""

from collections.abc import Mapping
from typing import Any

from orchestrator.core.placement import Placement
from orchestrator.core.profile import Engine, Profile
from orchestrator.core.settings import Settings

LEAST_QUEUED = 64
QUEUED_PER_SLOT = 8


def gateway_policy(
    profile: Profile,
    settings: Settings,
    placement: Placement,
    tokenizer_file: str | None = None,
) -> dict[str, Any]:
    """`tokenizer_file`: in the gateway's container; None where the model has none in a file."""
    wishes = profile.gateway
    max_queued = wishes.max_queued
    if max_queued is None:
        max_queued = max(LEAST_QUEUED, QUEUED_PER_SLOT * placement.slots)
    return {
        "version": 1,
        "profile": profile.name,
        "model": {
            "public": settings.model_name,
            "context_tokens": placement.context_tokens,
            "max_tokens": placement.max_tokens,
            "tokenizer_file": tokenizer_file,
            "think": wishes.think or _think(profile),
        },
        "defaults": {
            "system_message": settings.system_message or None,
            "sampling": wishes.sampling,
        },
        "capabilities": _capabilities(profile),
        "timeouts": {
            "first_token_base_s": settings.first_token_timeout_s,
            "first_token_per_prompt_token_s": wishes.first_token_per_prompt_token_s,
            "idle_s": settings.idle_timeout_s,
            "total_s": settings.total_timeout_s,
        },
        "queue": {
            # No more than the engine works on at once: its own line knows no fairness.
            "capacity": placement.slots,
            "max_queued": max_queued,
            # Nobody fills the line alone.
            "max_queued_per_key": max(1, max_queued // 2) if max_queued else 0,
            "max_wait_s": wishes.max_wait_s,
            # Or whoever waits as batch would give up before its turn.
            "batch_promoted_after_s": wishes.max_wait_s / 2,
            "hot_prefix_overtakes_tokens": wishes.hot_prefix_overtakes_tokens,
            "hold_on_engine_loss": True,
        },
    }


def _think(profile: Profile) -> str:
    """llama.cpp splits by itself, sglang with a parser; kt-legacy never."""
    return "split" if profile.engine is Engine.KT_LEGACY else "pass"


def _capabilities(profile: Profile) -> Mapping[str, Any]:
    match profile.engine:
        case Engine.LLAMACPP:
            # It sees a closed connection between two batches of a prompt.
            return {"metrics_path": "/metrics", "abort_grace_s": 1, "tokenize": "llama.cpp"}
        case Engine.KT_SGLANG:
            options = profile.kt_sglang
            return {
                "tools": options is not None and bool(options.tool_call_parser),
                "metrics_path": "/metrics",
                "abort_path": "/abort_request",
                "abort_grace_s": 2,
                # It has no path of its own that knows the chat template.
                "tokenize": None,
            }
        case Engine.KT_LEGACY:
            return {
                "tools": False,
                "json_mode": False,
                "logprobs": False,
                "n": False,
                "tokenize": "kt-legacy",
            }

"""What the policy changes in a request for the engine; without a reason its bytes stay as they are.

Works on requests in the engine's own dialect (OpenAI's), after a client's dialect has been read.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from gateway.engine_request import EngineRequest
from gateway.policy import Policy

# Rough, for queueing only: what is refused for its length is counted with the model's tokenizer.
_BYTES_PER_TOKEN = 4
_CAPS = ("max_tokens", "max_completion_tokens")
_CAP_UNKNOWN = 1024


def shaped(asked: EngineRequest, policy: Policy) -> EngineRequest:
    """The request as the engine gets it; Refused where the policy does not allow it."""
    if asked.body is None:
        return asked
    changes = {**_model(policy), **_clamped(asked.parsed, policy)}
    changes = {name: value for name, value in changes.items() if asked.parsed.get(name) != value}
    parsed = {**asked.parsed, **changes}
    return replace(
        asked,
        parsed=parsed,
        # orjson writes raw UTF-8: models imitate escapes that they find in their history.
        body=orjson.dumps(parsed) if changes else asked.body,
        prompt_tokens_estimate=len(asked.body) // _BYTES_PER_TOKEN,
        max_tokens_cap=_cap(parsed),
    )


def _model(policy: Policy) -> dict[str, Any]:
    return {} if policy.model.engine is None else {"model": policy.model.engine}


def _clamped(parsed: Mapping[str, Any], policy: Policy) -> dict[str, Any]:
    most = policy.model.max_tokens
    if most is None:
        return {}
    asked = {name: parsed[name] for name in _CAPS if isinstance(parsed.get(name), int)}
    if not asked:
        return {"max_tokens": most}
    return {name: min(value, most) for name, value in asked.items()}


def _cap(parsed: Mapping[str, Any]) -> int:
    asked = [parsed[name] for name in _CAPS if isinstance(parsed.get(name), int)]
    return max(min(asked), 0) if asked else _CAP_UNKNOWN

"""Requests and policies for tests of what the gateway changes."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.dialects.openai import CHAT, COMPLETIONS
from gateway.engine_request import EngineRequest
from gateway.errors import ApiError, Refused
from gateway.policy import Policy
from gateway.shaping import shaped

TOKENIZER = Path(__file__).parents[3] / "tests/fixtures/tinyseek/hf/tokenizer.json"


def policy(**parts: Any) -> Policy:
    """Of an engine that is asked as its client asks: what streams change has tests of its own."""
    capabilities = {"whole_as_stream": False, **parts.pop("capabilities", {})}
    return Policy.model_validate({**parts, "capabilities": capabilities})


def chat(**fields: Any) -> bytes:
    return orjson.dumps(fields if "prompt" in fields else {"messages": [], **fields})


def shape(body: bytes, here: Policy) -> EngineRequest:
    dialect = COMPLETIONS if b'"prompt":' in body else CHAT
    return shaped(dialect.read(body, here), here)


def refusal_of(body: bytes, here: Policy) -> ApiError:
    with pytest.raises(Refused) as refused:
        shape(body, here)
    return refused.value.error

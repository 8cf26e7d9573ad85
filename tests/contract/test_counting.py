"""What the gateway asks kt-legacy to count is what its server answers."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import SecretStr

from gateway.engine_counting import EngineCounter, NotCountedError
from gateway.engine_request import Counted
from gateway.policy import Policy
from gateway.upstream import Engine
from reciting import KEY, Reciter, serving

POLICY = Policy.model_validate({"capabilities": {"tokenize": "kt-legacy"}})


def _counted(url: str, parsed: Mapping[str, Any], key: str = KEY) -> Counted:
    async def ask() -> Counted:
        engine = Engine(url, SecretStr(key))
        try:
            return await EngineCounter(engine).counted(parsed, POLICY)
        finally:
            engine.close()

    return asyncio.run(ask())


def test_kt_legacy_counts_for_the_gateway_what_it_would_read() -> None:
    def talk(content: str, role: str = "user") -> Mapping[str, Any]:
        return {"model": "tiny", "messages": [{"role": role, "content": content}], "stream": True}

    with serving(Reciter()) as engine:
        usage = engine.chat("Hello").json()["usage"]
        assert _counted(engine.url, talk("Hello")) == Counted(count=usage["prompt_tokens"])
        assert _counted(engine.url, talk("<think>")).opens_thinking
        usage = engine.complete("Say|").json()["usage"]
        assert _counted(engine.url, {"prompt": "Say|"}) == Counted(count=usage["prompt_tokens"])
        with pytest.raises(NotCountedError, match="there are no messages of a tool"):
            _counted(engine.url, talk("x", role="tool"))
        with pytest.raises(NotCountedError):
            _counted(engine.url, talk("x"), key="wrong")

"""Counts tokens by asking the engine, where the profile gives the gateway no tokenizer of the model.

What a GGUF serves has no tokenizer.json beside it; its engine has the tokenizer and the template.
"""

import asyncio
import logging
from collections.abc import Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Any

import orjson

from gateway.dialects.engine_errors import UNUSABLE
from gateway.engine_faults import ENGINE_UNAVAILABLE
from gateway.engine_refusals import engine_error
from gateway.engine_request import Counted
from gateway.errors import ApiError
from gateway.policy import Policy, TokenizeApi
from gateway.request_errors import unsupported
from gateway.upstream import Engine, EngineError

_log = logging.getLogger(__name__)

_WITHIN_S = 2.0
# Nobody needs a permit to be counted, and the engine has other work.
_AT_ONCE = 4
_MOST_KNOWN = 64
_MOST_TEXTS = 32
# All of a request that decides what its prompt looks like.
_OF_A_TALK = ("messages", "tools", "tool_choice", "chat_template_kwargs")
_TALK = [{"role": "user", "content": "x"}]


class NotCountedError(Exception):
    """The engine did not count; `error` says why to whoever asked for nothing else."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


class EngineCounter:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._policy: Policy | None = None
        self._opens_thinking: dict[bytes, bool] = {}

    async def counted(
        self, parsed: Mapping[str, Any], policy: Policy, *, special: bool = True
    ) -> Counted:
        """Of a request in the engine's dialect: of its `prompt`, else of its `messages`.

        `special` adds what the model wants around a prompt. NotCountedError also where the engine
        has not said it in time.
        """
        try:
            return await asyncio.wait_for(self._counted(parsed, policy, special=special), _WITHIN_S)
        except EngineError as error:
            raise NotCountedError(ENGINE_UNAVAILABLE) from error
        except asyncio.TimeoutError as error:
            raise NotCountedError(ENGINE_UNAVAILABLE) from error

    async def count(self, parsed: Mapping[str, Any], policy: Policy) -> int | None:
        """None where it can't be told: the engine itself will refuse what is too long."""
        try:
            return (await self.counted(parsed, policy)).count
        except NotCountedError as error:
            _log.warning("a prompt was not counted by the engine: %s", error)
            return None

    async def opens_thinking(self, parsed: Mapping[str, Any], policy: Policy) -> bool:
        """Asked once for what the template can be told, until the policy changes."""
        if policy is not self._policy:
            self._policy, self._opens_thinking = policy, {}
        # A template is switched by these; what is said in a talk hardly ever does it.
        asked = {"chat_template_kwargs": parsed.get("chat_template_kwargs") or {}}
        # Its digest: a client may put megabytes there, and this is kept.
        key = sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).digest()
        if (known := self._opens_thinking.get(key)) is not None:
            return known
        known_here = self._opens_thinking
        try:
            opens = (await self.counted({"messages": _TALK, **asked}, policy)).opens_thinking
        except NotCountedError as error:
            _log.warning("whether prompts open the thinking is not known: %s", error)
            return False
        if len(known_here) >= _MOST_KNOWN:
            del known_here[next(iter(known_here))]
        known_here[key] = opens
        return opens

    async def _counted(
        self, parsed: Mapping[str, Any], policy: Policy, *, special: bool
    ) -> Counted:
        api = policy.capabilities.tokenize
        prompt = parsed.get("prompt")
        async with self._turns:
            if prompt is None:
                return await self._talk(parsed, api)
            if isinstance(prompt, str):
                return await self._text(prompt, api, special=special)
            if not any(isinstance(each, str) for each in prompt):
                return Counted(count=_numbers(prompt))
            # Of several the longest decides.
            longest = sorted(prompt, key=len)[-_MOST_TEXTS:]
            return Counted(
                count=max(
                    [(await self._text(each, api, special=special)).count for each in longest]
                )
            )

    async def _talk(self, parsed: Mapping[str, Any], api: TokenizeApi | None) -> Counted:
        asked = {name: parsed[name] for name in _OF_A_TALK if parsed.get(name) is not None}
        if api == "kt-legacy":
            said = await self._ask("/tokenize", {"messages": asked["messages"]})
            return _said(said)
        prompt = (await self._ask("/apply-template", asked)).get("prompt")
        if not isinstance(prompt, str):
            raise NotCountedError(UNUSABLE)
        counted = await self._text(prompt, api, special=True)
        opens = prompt.rstrip().endswith("<think>")
        return Counted(count=counted.count, tokens=counted.tokens, opens_thinking=opens)

    async def _text(self, text: str, api: TokenizeApi | None, *, special: bool) -> Counted:
        if api == "kt-legacy":
            if not special:
                raise NotCountedError(unsupported("add_special_tokens"))
            return _said(await self._ask("/tokenize", {"prompt": text}))
        asked = {"content": text, "add_special": special, "parse_special": True}
        tokens = (await self._ask("/tokenize", asked)).get("tokens")
        if not isinstance(tokens, list):
            raise NotCountedError(UNUSABLE)
        return Counted(count=len(tokens), tokens=tokens)

    async def _ask(self, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        async with self._engine.ask(
            "POST",
            path,
            headers={"content-type": "application/json"},
            body=orjson.dumps(asked),
            connect_timeout_s=_WITHIN_S,
        ) as answer:
            status, body = answer.status, await answer.read_all()
        if status != HTTPStatus.OK:
            raise NotCountedError(engine_error(status, body))
        try:
            said = orjson.loads(body)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise NotCountedError(UNUSABLE)
        return said


def asks_engine(policy: Policy) -> bool:
    return policy.capabilities.tokenize is not None and policy.model.tokenizer_file is None


def _numbers(prompt: list[Any]) -> int:
    """Of a prompt that is token numbers already, or of the longest of several."""
    return max([len(each) for each in prompt if isinstance(each, list)], default=len(prompt))


def _said(said: Mapping[str, Any]) -> Counted:
    count, opens = said.get("count"), said.get("opens_thinking")
    if not isinstance(count, int):
        raise NotCountedError(UNUSABLE)
    return Counted(count=count, opens_thinking=opens is True)

"""Client libraries as their users install them, unchanged but for address and key.

Each streams, gets every character whole, calls tools, waits in the line without noticing, raises
its own exceptions and tries again where it is told to. `test_dialects` and others say what is sent.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from clients.environments import HERE, node_packages, python_of
from images.gateway.tests.shaping_support import TOKENIZER
from images.gateway.tests.support import (
    ENGINE_KEY,
    GATEWAY_KEY,
    Gateway,
    environment,
    policy_file,
    running_gateway,
)
from paced_engine.running import RunningEngine, running_engine

# Line ends of Unicode, a flag of two code points and an emoji of several: none may end a line or be cut.
TEXT = "是 🐼\u2028\u0085🇨🇳👩‍👩‍👧 x"
REASONING = "北京 🤔"
PLACE = "北京"
PLAIN = "是\n🐼"

WITHIN_S = 240

HERE_ANYWAY = "the development packages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    script: str
    packages: str | None = None
    """The lock beside this file; None for Node."""
    errors: Mapping[str, str]
    """The class that each case raises, or one above it."""
    stream: Mapping[str, object] = field(default_factory=dict)
    """What else than the text it tells of a stream."""
    attempts: int = 2
    """At a busy engine, when told to try again once."""


_ARGUMENTS = json.dumps({"place": PLACE}, ensure_ascii=False)
_OPENAI_STREAM = {
    "reasoning": REASONING,
    "tool": "weather" + _ARGUMENTS,
    "end": "tool_calls",
    "tokens": 9,
}
_STATUS_ERRORS = {
    "key": "AuthenticationError",
    "model": "NotFoundError",
    "value": "BadRequestError",
    "length": "BadRequestError",
    "limit": "RateLimitError",
    "busy": "InternalServerError",
    "lost": "InternalServerError",
    "cut": "APIError",
}
_ANTHROPIC_STREAM = {**_OPENAI_STREAM, "tool": "weather" + PLACE, "end": "tool_use"}
_OLLAMA = dict.fromkeys(
    ("full", "key", "model", "value", "length", "limit", "busy", "lost", "cut"), "ResponseError"
)

CLIENTS = {
    "openai": Client(
        script="openai_client.py", packages="openai", errors=_STATUS_ERRORS, stream=_OPENAI_STREAM
    ),
    "openai 1": Client(
        script="openai_client.py", packages="openai-1", errors=_STATUS_ERRORS, stream=_OPENAI_STREAM
    ),
    "openai-node": Client(script="openai_client.mjs", errors=_STATUS_ERRORS, stream=_OPENAI_STREAM),
    "anthropic": Client(
        script="anthropic_client.py",
        packages="anthropic",
        errors=_STATUS_ERRORS,
        stream=_ANTHROPIC_STREAM,
    ),
    "anthropic-node": Client(
        script="anthropic_client.mjs", errors=_STATUS_ERRORS, stream=_ANTHROPIC_STREAM
    ),
    "ollama": Client(
        script="ollama_client.py",
        packages="ollama",
        errors=_OLLAMA,
        stream={**_OPENAI_STREAM, "tool": "weather" + PLACE, "end": "stop"},
        attempts=1,
    ),
    "langchain-openai": Client(
        script="langchain_client.py",
        packages="langchain-openai",
        errors=_STATUS_ERRORS,
        stream={"tool": "weather" + PLACE, "end": "tool_calls", "tokens": 9},
    ),
    "litellm": Client(
        script="litellm_client.py",
        packages="litellm",
        errors={**_STATUS_ERRORS, "busy": "ServiceUnavailableError", "lost": "BadGatewayError"},
        stream=_OPENAI_STREAM,
    ),
    "llm": Client(
        script="llm_client.py",
        packages="llm",
        errors=_STATUS_ERRORS,
        stream={"tool": "weather" + PLACE, "tokens": 9},
        attempts=3,
    ),
}
_USAGE = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
_STATUS = {"key": 401, "model": 404, "value": 400, "length": 400, "limit": 429, "busy": 503}


@dataclass(frozen=True, slots=True)
class Stack:
    engine: RunningEngine
    gateway: Gateway
    full: Gateway
    """The same with no line: who finds the engine busy is told to come again."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    model = {
        "public": "chat",
        "engine": "paced",
        "context_tokens": 40_000,
        "max_tokens": 4000,
        "tokenizer_file": str(TOKENIZER),
        "think": "split",
    }
    # So soon that every stream that waits gets comments.
    line = {"capacity": 1, "visible_after_s": 0.2, "visible_every_s": 0.1}
    queues = (line, {**line, "max_queued": 0})
    with running_engine(api_key=ENGINE_KEY) as engine:
        folders = [tmp_path_factory.mktemp("gateway") for _ in queues]
        policies = [
            policy_file(folder, model=model, queue=queue)
            for folder, queue in zip(folders, queues, strict=True)
        ]
        one, other = (
            environment(folder, engine.url, POLICY_FILE=policy)
            for folder, policy in zip(folders, policies, strict=True)
        )
        with running_gateway(one) as gateway, running_gateway(other) as full:
            yield Stack(engine, gateway, full)


def test_the_client_that_is_installed_here_anyway_runs_unchanged(
    stack: Stack, tmp_path: Path
) -> None:
    """One real case for `make test`."""
    _check(replace(CLIENTS["openai"], packages=HERE_ANYWAY), stack, tmp_path, "openai here")


@pytest.mark.long
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_runs_unchanged(name: str, stack: Stack, tmp_path: Path) -> None:
    _check(CLIENTS[name], stack, tmp_path, name)


def _check(client: Client, stack: Stack, tmp_path: Path, name: str) -> None:
    refused_before = _too_many(stack.full)

    seen = _run(client, stack, tmp_path, name)

    assert seen["stream"] == {"text": TEXT, **client.stream}
    assert seen["whole"] == PLAIN
    assert seen["waited"] == TEXT
    assert _too_many(stack.full) > refused_before
    assert seen.get("retried", PLAIN) == PLAIN
    assert seen.get("models", ["chat"]) in (["chat"], ["chat:latest"])
    assert {case: error["is"] for case, error in seen["errors"].items() if not error["is"]} == {}
    for case, error in seen["errors"].items():
        assert client.errors[case] in error["is"], (case, error)
        assert error["status"] in (None, _STATUS.get(case, error["status"])), (case, error)
    assert "40000 tokens" in seen["errors"]["length"]["says"]
    busy = [one for one in stack.engine.seen() if _mark(name).encode() in _body(one)]
    assert len(busy) == client.attempts
    assert "Traceback" not in "".join(stack.gateway.log)


def _run(client: Client, stack: Stack, tmp_path: Path, name: str) -> dict[str, Any]:
    packages = {}
    if client.packages is None:
        if shutil.which("npm") is None:
            pytest.skip("there is no npm")
        packages = {"PACKAGES": str(node_packages())}
        interpreter = "node"
    else:
        here = client.packages == HERE_ANYWAY
        interpreter = sys.executable if here else str(python_of(client.packages))
    done = subprocess.run(
        [interpreter, HERE / client.script],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(HERE.parent),
            "HOME": str(tmp_path),
            "GATEWAY_URL": stack.gateway.url,
            "FULL_GATEWAY_URL": stack.full.url,
            "GATEWAY_KEY": GATEWAY_KEY,
            "SAY": json.dumps(_prompts(name)),
            "LLM_USER_PATH": str(tmp_path),
            # Or it looks for prices in the internet.
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            **packages,
        },
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Some say something before. No line end of Unicode ends a line here.
    seen: dict[str, Any] = json.loads(done.stdout.rstrip("\n").rsplit("\n", 1)[-1])
    return seen


def _prompts(name: str) -> dict[str, str]:
    refusal = [_encoded(b'{"error":{"message":"boom"}}')]
    paces: dict[str, dict[str, object]] = {
        "talk": {"raw_b64": _talk()},
        "plain": {"raw_b64": _plain()},
        "occupy": {"ticks": 3, "tick_s": 0.4},
        "limit": {"status": 429, "raw_b64": refusal},
        "busy": {"status": 503, "raw_b64": refusal, "headers": {"x-mark": _mark(name)}},
        "cut": {"ticks": 4, "cut_at_tick": 2},
        "lost": {"ticks": 4, "cut_at_tick": 0},
    }
    return {case: "paced: " + json.dumps({"tick_s": 0.0, **pace}) for case, pace in paces.items()}


def _plain() -> list[str]:
    """What the engine streams for whoever asks for a whole answer."""
    said = {"role": "assistant", "content": PLAIN}
    choices = ({"index": 0, "delta": said}, {"index": 0, "delta": {}, "finish_reason": "stop"})
    events = [
        *(_chunk(choices=[choice]) for choice in choices),
        _chunk(choices=[], usage=_USAGE),
        b"data: [DONE]\n\n",
    ]
    return [_encoded(event) for event in events]


def _talk() -> list[str]:
    """An answer that thinks, speaks and calls a tool, in pieces that respect no border."""
    half = len(TEXT) // 2
    called = _ARGUMENTS
    deltas: list[dict[str, object]] = [
        {"role": "assistant", "content": "<think>" + REASONING[:1]},
        {"content": REASONING[1:] + "</thi"},
        {"content": "nk>\n\n" + TEXT[:half]},
        {"content": TEXT[half:]},
        _call(0, id="call_0", type="function", function={"name": "weather", "arguments": ""}),
        _call(0, function={"arguments": called[:11]}),
        _call(0, function={"arguments": called[11:]}),
    ]
    choices: list[dict[str, object]] = [
        {"index": 0, "delta": delta, "finish_reason": None} for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    events = [
        *(_chunk(choices=[choice]) for choice in choices),
        _chunk(choices=[], usage=_USAGE),
        b"data: [DONE]\n\n",
    ]
    said = b"".join(events)
    return [_encoded(said[at : at + 7]) for at in range(0, len(said), 7)]


def _call(index: int, **parts: object) -> dict[str, object]:
    return {"tool_calls": [{"index": index, **parts}]}


def _chunk(**parts: object) -> bytes:
    named = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "paced"}
    return b"data: " + json.dumps({**named, **parts}, ensure_ascii=False).encode() + b"\n\n"


def _encoded(part: bytes) -> str:
    return base64.b64encode(part).decode()


def _mark(name: str) -> str:
    return f"busy for {name}!"


def _body(seen: dict[str, Any]) -> bytes:
    return RunningEngine.body_of(seen)


def _too_many(gateway: Gateway) -> float:
    paths = ("/v1/chat/completions", "/v1/messages", "/api/chat")
    return sum(gateway.metric("gateway_requests_total", route=each, status="429") for each in paths)

"""What every engine is asked, and what a request is recognised by."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CHAT, COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"
QUESTION = "What is the capital of France?"
LISTED = "Count from one to twelve."
STORY = "Tell me a story."
WRONG_KEY = "not-the-key"
OTHER_MODEL = "a-model-that-is-not-here"
SHORT_TOKENS, REPLY_TOKENS, LONG_TOKENS = 3, 32, 400
_USAGE: dict[str, Any] = {"stream_options": {"include_usage": True}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """`right_key`: None sends no key at all."""

    method: str = "POST"
    path: str = CHAT
    body: bytes | None = None
    right_key: bool | None = True


def requests(model: str, context_tokens: int) -> dict[str, Asked]:
    """Those that stand alone, by name. `context_tokens`: what a prompt is to be longer than."""

    def chat(content: str = QUESTION, **more: Any) -> Asked:
        messages = [{"role": "user", "content": content}]
        return _post(CHAT, {"model": model, "messages": messages, "temperature": 0, **more})

    def complete(**more: Any) -> Asked:
        said = {"model": model, "prompt": QUESTION, "temperature": 0, "max_tokens": REPLY_TOKENS}
        return _post(COMPLETIONS, said | more)

    reply: dict[str, Any] = {"max_tokens": REPLY_TOKENS}
    too_long = "word " * (context_tokens + 1)
    return {
        "health": Asked(method="GET", path="/health", right_key=None),
        "models": Asked(method="GET", path=MODELS),
        "models, wrong key": Asked(method="GET", path=MODELS, right_key=False),
        "chat": chat(**reply),
        "chat, stream": chat(stream=True, **reply),
        "chat, stream with usage": chat(stream=True, **reply, **_USAGE),
        "chat, cut short": chat(LISTED, max_tokens=SHORT_TOKENS),
        "chat, stream cut short": chat(LISTED, max_tokens=SHORT_TOKENS, stream=True, **_USAGE),
        "completion": complete(),
        "completion, stream with usage": complete(stream=True, **_USAGE),
        "no JSON": Asked(body=b'{"model": '),
        "no messages": _post(CHAT, {"model": model}),
        "wrong type": _post(CHAT, {"model": model, "messages": "Hi"}),
        "unknown model": _post(
            CHAT,
            {"model": OTHER_MODEL, "messages": [{"role": "user", "content": QUESTION}], **reply},
        ),
        "wrong key": Asked(body=chat(**reply).body, right_key=False),
        "no key": Asked(body=chat(**reply).body, right_key=None),
        "too long": chat(too_long, **reply),
        "too long, stream": chat(too_long, stream=True, **reply, **_USAGE),
        "unknown path": _post("/v1/nothing", {}),
    }


def story(model: str, **more: Any) -> Asked:
    """A stream that is longer than two requests that meet, or a client that leaves, take."""
    said = {
        "model": model,
        "messages": [{"role": "user", "content": STORY}],
        "temperature": 0,
        "max_tokens": LONG_TOKENS,
        "ignore_eos": True,
        "stream": True,
    }
    return _post(CHAT, said | _USAGE | more)


def question(model: str) -> Asked:
    return requests(model, 1)["chat"]


def sign_of(method: str, path: str, body: bytes | None) -> str:
    """What is alike in a request and in what a gateway makes of it: names and limits may change."""
    if not body:
        return f"{method} {path}"
    try:
        said: Mapping[str, Any] = json.loads(body)
    except ValueError:
        return f"{method} {path} no JSON"
    options = said.get("stream_options") or {}
    told = [said.get("messages"), said.get("prompt"), said.get("stream") is True]
    return f"{method} {path} {json.dumps([*told, options.get('include_usage') is True])}"


def _post(path: str, said: Mapping[str, Any]) -> Asked:
    return Asked(path=path, body=json.dumps(said).encode())

"""litellm as a client of an OpenAI-compatible service."""

from functools import partial
from importlib.metadata import version
from typing import Any

import litellm

from clients.asking import FULL_URL, KEY, MODEL, SAY, TOO_LONG, URL, engine_busy, error_of, tell

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def completion(prompt: str, *, url: str = URL, retries: int = 0, **more: Any) -> Any:
    asked = {
        "model": f"openai/{MODEL}",
        "api_base": f"{url}/v1",
        "api_key": KEY,
        "messages": [{"role": "user", "content": prompt}],
        "max_retries": retries,
        **more,
    }
    return litellm.completion(**asked)


def whole(prompt: str, **more: Any) -> Any:
    return completion(prompt, **more).choices[0].message.content


def streamed(prompt: str, **more: Any) -> dict[str, Any]:
    seen: dict[str, Any] = {"text": "", "reasoning": "", "tool": "", "end": None, "tokens": None}
    for chunk in completion(prompt, stream=True, **more):
        if usage := getattr(chunk, "usage", None):
            seen["tokens"] = usage.prompt_tokens
        for choice in chunk.choices:
            seen["text"] += choice.delta.content or ""
            seen["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
            seen["end"] = choice.finish_reason or seen["end"]
            for call in choice.delta.tool_calls or []:
                seen["tool"] += (call.function.name or "") + (call.function.arguments or "")
    return seen


def retried() -> str:
    with engine_busy(FULL_URL):
        return str(whole(SAY["plain"], url=FULL_URL, retries=2))


def main() -> None:
    with engine_busy(URL):
        waited = streamed(SAY["talk"])["text"]
    tell(
        version=version("litellm"),
        stream=streamed(SAY["talk"], tools=[TOOL], stream_options={"include_usage": True}),
        whole=whole(SAY["plain"]),
        waited=waited,
        retried=retried(),
        errors={
            "key": error_of(partial(whole, SAY["plain"], api_key="wrong")),
            "model": error_of(partial(whole, SAY["plain"], model="openai/gpt-4")),
            "value": error_of(partial(whole, SAY["plain"], max_tokens=-1)),
            "length": error_of(partial(whole, TOO_LONG)),
            "limit": error_of(partial(whole, SAY["limit"])),
            "busy": error_of(partial(whole, SAY["busy"], retries=1)),
            "cut": error_of(partial(streamed, SAY["cut"])),
            "lost": error_of(partial(streamed, SAY["lost"])),
        },
    )


main()

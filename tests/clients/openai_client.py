"""openai-python, whichever version is installed."""

from functools import partial
from typing import Any

import openai

from clients.asking import FULL_URL, KEY, MODEL, SAY, TOO_LONG, URL, engine_busy, error_of, tell

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def client(url: str = URL, key: str = KEY, retries: int = 0) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=retries)


def whole(prompt: str, *, at: Any = None, **more: Any) -> Any:
    asked = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], **more}
    answer = (at or client()).chat.completions.create(**asked)
    return answer.choices[0].message.content


def streamed(prompt: str, **more: Any) -> dict[str, Any]:
    seen: dict[str, Any] = {"text": "", "reasoning": "", "tool": "", "end": None, "tokens": None}
    asked = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], **more}
    for chunk in client().chat.completions.create(stream=True, **asked):
        if chunk.usage:
            seen["tokens"] = chunk.usage.prompt_tokens
        for choice in chunk.choices:
            seen["text"] += choice.delta.content or ""
            seen["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
            seen["end"] = choice.finish_reason or seen["end"]
            for call in choice.delta.tool_calls or []:
                seen["tool"] += (call.function.name or "") + (call.function.arguments or "")
    return seen


def retried() -> str:
    with engine_busy(FULL_URL):
        return str(whole(SAY["plain"], at=client(FULL_URL, retries=2)))


def main() -> None:
    with engine_busy(URL):
        waited = streamed(SAY["talk"])["text"]
    tell(
        version=openai.__version__,
        models=[model.id for model in client().models.list()],
        stream=streamed(SAY["talk"], tools=[TOOL], stream_options={"include_usage": True}),
        whole=whole(SAY["plain"]),
        waited=waited,
        retried=retried(),
        errors={
            "key": error_of(client(key="wrong").models.list),
            "model": error_of(partial(whole, SAY["plain"], model="gpt-4")),
            "value": error_of(partial(whole, SAY["plain"], max_tokens=-1)),
            "length": error_of(partial(whole, TOO_LONG)),
            "limit": error_of(partial(whole, SAY["limit"])),
            "busy": error_of(partial(whole, SAY["busy"], at=client(retries=1))),
            "cut": error_of(partial(streamed, SAY["cut"])),
            "lost": error_of(partial(streamed, SAY["lost"])),
        },
    )


main()

"""ollama-python, which does not try again by itself."""

from functools import partial
from importlib.metadata import version
from typing import Any

import ollama

from clients.asking import FULL_URL, KEY, MODEL, SAY, TOO_LONG, URL, engine_busy, error_of, tell

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def client(url: str = URL, key: str = KEY) -> Any:
    return ollama.Client(host=url, headers={"Authorization": f"Bearer {key}"})


def whole(prompt: str, *, at: Any = None, **more: Any) -> Any:
    asked = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], **more}
    return (at or client()).chat(**asked).message.content


def streamed(prompt: str, **more: Any) -> dict[str, Any]:
    seen: dict[str, Any] = {"text": "", "reasoning": "", "tool": "", "end": None, "tokens": None}
    asked = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], **more}
    for part in client().chat(stream=True, **asked):
        seen["text"] += part.message.content or ""
        seen["reasoning"] += part.message.thinking or ""
        for call in part.message.tool_calls or []:
            seen["tool"] += call.function.name + call.function.arguments["place"]
        seen["end"], seen["tokens"] = part.done_reason, part.prompt_eval_count
    return seen


def refused_when_full() -> dict[str, Any]:
    with engine_busy(FULL_URL):
        return error_of(partial(whole, SAY["plain"], at=client(FULL_URL)))


def main() -> None:
    with engine_busy(URL):
        waited = streamed(SAY["talk"])["text"]
    tell(
        version=version("ollama"),
        models=[model.model for model in client().list().models],
        stream=streamed(SAY["talk"], tools=[TOOL]),
        whole=whole(SAY["plain"]),
        generated=client().generate(model=MODEL, prompt=SAY["plain"]).response,
        waited=waited,
        errors={
            "full": refused_when_full(),
            "key": error_of(client(key="wrong").list),
            "model": error_of(partial(whole, SAY["plain"], model="llama3")),
            "value": error_of(partial(whole, SAY["plain"], options={"num_predict": "many"})),
            "length": error_of(partial(whole, TOO_LONG)),
            "limit": error_of(partial(whole, SAY["limit"])),
            "busy": error_of(partial(whole, SAY["busy"])),
            "cut": error_of(partial(streamed, SAY["cut"])),
            "lost": error_of(partial(streamed, SAY["lost"])),
        },
    )


main()

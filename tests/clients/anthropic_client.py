"""Anthropic's SDK, with the key in its own header and as a bearer token."""

from functools import partial
from typing import Any

import anthropic

from clients.asking import FULL_URL, KEY, MODEL, SAY, TOO_LONG, URL, engine_busy, error_of, tell

TOOL = {"name": "weather", "input_schema": {"type": "object"}}


def client(url: str = URL, key: str = KEY, retries: int = 0) -> Any:
    return anthropic.Anthropic(base_url=url, api_key=key, max_retries=retries)


def whole(prompt: str, *, at: Any = None, **more: Any) -> Any:
    messages = [{"role": "user", "content": prompt}]
    asked = {"model": MODEL, "max_tokens": 50, "messages": messages, **more}
    return (at or client()).messages.create(**asked).content[0].text


def streamed(prompt: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    asked = {"model": MODEL, "max_tokens": 50, "messages": messages, **more}
    with client().messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    blocks = {block.type: block for block in message.content}
    return {
        "text": text,
        "reasoning": blocks["thinking"].thinking if "thinking" in blocks else "",
        "tool": blocks["tool_use"].name + str(blocks["tool_use"].input["place"]),
        "end": message.stop_reason,
        "tokens": message.usage.input_tokens,
    }


def retried() -> str:
    with engine_busy(FULL_URL):
        return str(whole(SAY["plain"], at=client(FULL_URL, retries=2)))


def main() -> None:
    with engine_busy(URL):
        waited = streamed(SAY["talk"])["text"]
    bearer = anthropic.Anthropic(base_url=URL, auth_token=KEY, api_key=None, max_retries=0)
    tell(
        version=anthropic.__version__,
        stream=streamed(SAY["talk"], tools=[TOOL]),
        whole=whole(SAY["plain"], at=bearer, system="Hi."),
        waited=waited,
        retried=retried(),
        errors={
            "key": error_of(partial(whole, SAY["plain"], at=client(key="wrong"))),
            "model": error_of(partial(whole, SAY["plain"], model="claude")),
            "value": error_of(partial(whole, SAY["plain"], max_tokens=0)),
            "length": error_of(partial(whole, TOO_LONG)),
            "limit": error_of(partial(whole, SAY["limit"])),
            "busy": error_of(partial(whole, SAY["busy"], at=client(retries=1))),
            "cut": error_of(partial(streamed, SAY["cut"])),
            "lost": error_of(partial(streamed, SAY["lost"])),
        },
    )


main()

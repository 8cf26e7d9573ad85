"""langchain-openai's ChatOpenAI."""

from functools import partial
from importlib.metadata import version
from typing import Any

from langchain_openai import ChatOpenAI

from clients.asking import FULL_URL, KEY, MODEL, SAY, TOO_LONG, URL, engine_busy, error_of, tell

TOOL = {"name": "weather", "description": "", "parameters": {"type": "object", "properties": {}}}


def chat(url: str = URL, key: str = KEY, retries: int = 0, **more: Any) -> Any:
    told = {"model": MODEL, "base_url": f"{url}/v1", "api_key": key, "max_retries": retries}
    return ChatOpenAI(**{**told, **more})


def whole(prompt: str, *, at: Any = None, **more: Any) -> Any:
    return (at or chat(**more)).invoke(prompt).content


def streamed(prompt: str, *, tools: bool = False) -> dict[str, Any]:
    model = chat(stream_usage=True)
    said = None
    for chunk in (model.bind_tools([TOOL]) if tools else model).stream(prompt):
        said = chunk if said is None else said + chunk
    if said is None:
        return {}
    calls = [call["name"] + str(call["args"].get("place")) for call in said.tool_calls]
    return {
        "text": said.content,
        "tool": "".join(calls),
        "end": said.response_metadata.get("finish_reason"),
        "tokens": said.usage_metadata and said.usage_metadata["input_tokens"],
    }


def retried() -> str:
    with engine_busy(FULL_URL):
        return str(whole(SAY["plain"], at=chat(FULL_URL, retries=2)))


def main() -> None:
    with engine_busy(URL):
        waited = streamed(SAY["talk"])["text"]
    tell(
        version=version("langchain-openai"),
        stream=streamed(SAY["talk"], tools=True),
        whole=whole(SAY["plain"]),
        waited=waited,
        retried=retried(),
        errors={
            "key": error_of(partial(whole, SAY["plain"], key="wrong")),
            "model": error_of(partial(whole, SAY["plain"], model="gpt-4")),
            "value": error_of(partial(whole, SAY["plain"], temperature=0.5, max_tokens=-1)),
            "length": error_of(partial(whole, TOO_LONG)),
            "limit": error_of(partial(whole, SAY["limit"])),
            "busy": error_of(partial(whole, SAY["busy"], retries=1)),
            "cut": error_of(partial(streamed, SAY["cut"])),
            "lost": error_of(partial(streamed, SAY["lost"])),
        },
    )


main()

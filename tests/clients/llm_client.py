"""simonw's llm, with the model as its documentation says to add an OpenAI-compatible one."""

import os
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from clients.asking import FULL_URL, KEY, MODEL, SAY, TOO_LONG, URL, engine_busy, error_of, tell

MODELS = "".join(
    f"- {{model_id: {name}, model_name: {model}, api_base: {url}/v1, supports_tools: true, api_key_name: gateway}}\n"
    for name, model, url in [
        ("here", MODEL, URL),
        ("full", MODEL, FULL_URL),
        ("unknown", "gpt-4", URL),
    ]
)
Path(os.environ["LLM_USER_PATH"], "extra-openai-models.yaml").write_text(MODELS)

import llm  # noqa: E402 - it reads the file above


def weather(place: str) -> str:
    """What the weather is like."""
    return place


def prompt(text: str, name: str = "here", key: str = KEY, **more: Any) -> Any:
    return llm.get_model(name).prompt(text, key=key, **more)


def whole(text: str, **more: Any) -> Any:
    return prompt(text, stream=False, **more).text()


def streamed(text: str, **more: Any) -> dict[str, Any]:
    answer = prompt(text, stream=True, **more)
    said = "".join(answer)
    calls = [call.name + call.arguments["place"] for call in answer.tool_calls()]
    return {"text": said, "tool": "".join(calls), "tokens": answer.usage().input}


def retried() -> str:
    with engine_busy(FULL_URL):
        return str(whole(SAY["plain"], name="full"))


def main() -> None:
    with engine_busy(URL):
        waited = streamed(SAY["talk"])["text"]
    tell(
        version=version("llm"),
        stream=streamed(SAY["talk"], tools=[weather]),
        whole=whole(SAY["plain"]),
        waited=waited,
        retried=retried(),
        errors={
            "key": error_of(partial(whole, SAY["plain"], key="wrong")),
            "model": error_of(partial(whole, SAY["plain"], name="unknown")),
            "value": error_of(partial(whole, SAY["plain"], max_tokens=-1)),
            "length": error_of(partial(whole, TOO_LONG)),
            "limit": error_of(partial(whole, SAY["limit"])),
            "busy": error_of(partial(whole, SAY["busy"])),
            "cut": error_of(partial(streamed, SAY["cut"])),
            "lost": error_of(partial(streamed, SAY["lost"])),
        },
    )


main()

"""The model's own chat template: what a talk looks like to the model, before it becomes tokens."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import orjson
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONFIG_NAME = "tokenizer_config.json"


class ChatTemplate:
    def __init__(self, template: str, names: Mapping[str, str]) -> None:
        # As transformers renders it, whose templates these are.
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols"],
            autoescape=False,
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        self._template = environment.from_string(template)
        self._names = dict(names)

    @classmethod
    def beside(cls, tokenizer_file: Path) -> "ChatTemplate | None":
        """The one of the same model; None where there is none, or none that can be read."""
        try:
            config = orjson.loads((tokenizer_file.parent / CONFIG_NAME).read_bytes())
            names = {key: _text(value) for key, value in config.items() if key.endswith("_token")}
            return cls(config["chat_template"], names)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, jinja2.TemplateError):
            return None

    def render(self, parsed: Mapping[str, Any]) -> str | None:
        """The prompt of a chat request; None where the template does not take it."""
        options = parsed.get("chat_template_kwargs")
        try:
            return self._template.render(
                {
                    **self._names,
                    **(options if isinstance(options, dict) else {}),
                    "messages": [_flat(message) for message in parsed["messages"]],
                    "tools": parsed.get("tools") or None,
                    "add_generation_prompt": True,
                }
            )
        except Exception:  # noqa: BLE001 - a foreign program, and the request may be what it can't take
            return None


def text_of(content: object) -> str:
    """The text of a message's content, whichever of its forms that has."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    return "".join(
        part["text"]
        for part in content
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    )


def _flat(message: Mapping[str, Any]) -> dict[str, Any]:
    return {**message, "content": text_of(message.get("content"))}


def _text(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else str(token or "")


def _to_json(value: object, indent: int | None = None, **_: object) -> str:
    option = orjson.OPT_INDENT_2 if indent else 0
    return orjson.dumps(value, option=option).decode()


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)

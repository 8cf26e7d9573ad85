"""How the paced engine counts: a word is a token, and one begins every text.

It speaks llama.cpp's dialect and kt-legacy's, which are told apart by what is asked.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATHS = ("/apply-template", "/tokenize")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizing:
    opens_thinking: bool = False
    """The template ends every prompt in `<think>`, unless a request's `thinking` is false."""
    delay_s: float = 0.0
    status: int = 200

    def answer(self, path: str, body: bytes) -> Any:
        said: dict[str, Any] = json.loads(body)
        # Null is as not said.
        asked = {name: value for name, value in said.items() if value is not None}
        if path == "/apply-template":
            return {"prompt": self._prompt(asked)}
        if "content" in asked:
            begin = [1] if asked.get("add_special") else []
            return {"tokens": [*begin, *range(2, 2 + len(asked["content"].split()))]}
        if "prompt" in asked:
            return {"count": 1 + len(asked["prompt"].split()), "opens_thinking": False}
        count = 1 + len(self._prompt(asked).split())
        return {"count": count, "opens_thinking": self.opens_thinking}

    def _prompt(self, asked: Mapping[str, Any]) -> str:
        said = [f"[{each['role']}] {each.get('content')}\n" for each in asked.get("messages", ())]
        said += [f"[tool] {json.dumps(each)}\n" for each in asked.get("tools") or ()]
        wanted = (asked.get("chat_template_kwargs") or {}).get("thinking", True)
        return (
            "".join(said) + "[assistant]" + ("<think>\n" if self.opens_thinking and wanted else "")
        )

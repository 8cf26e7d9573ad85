"""Words that have the paced engine answer at a pace."""

import json
from typing import Any


def paced_words(**paced: object) -> str:
    """What a message or a prompt says to have the engine answer at that pace."""
    return "paced: " + json.dumps(paced)


def paced_messages(**paced: object) -> list[Any]:
    return [{"role": "user", "content": paced_words(**paced)}]

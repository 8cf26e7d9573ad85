"""The routes that there are. What is not named here never reaches the engine."""

from gateway.dialects.dialect import Dialect
from gateway.dialects.openai import CHAT, COMPLETIONS, Models
from gateway.errors import OpenAIVoice, Voice

DIALECTS: tuple[Dialect, ...] = (Models(), CHAT, COMPLETIONS)


def voice_of(path: str) -> Voice:
    """How errors are said to who asks for `path`, also where it does not exist."""
    return next((dialect for dialect in DIALECTS if dialect.path == path), OpenAIVoice())

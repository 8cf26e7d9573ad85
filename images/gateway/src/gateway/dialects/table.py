"""The routes that there are. What is not named here never reaches the engine."""

from gateway.dialects.anthropic import AnthropicVoice, CountTokens, Messages
from gateway.dialects.dialect import Dialect
from gateway.dialects.ollama import GENERATE, OLLAMA_CHAT, OllamaVoice
from gateway.dialects.ollama_models import PS, SHOW, TAGS, VERSION
from gateway.dialects.openai import CHAT, COMPLETIONS, Models
from gateway.dialects.tokenize import Tokenize
from gateway.errors import OpenAIVoice, Voice

DIALECTS: tuple[Dialect, ...] = (
    Models(),
    CHAT,
    COMPLETIONS,
    Tokenize(),
    Messages(),
    CountTokens(),
    OLLAMA_CHAT,
    GENERATE,
    TAGS,
    PS,
    SHOW,
    VERSION,
)
_VOICES: tuple[tuple[str, Voice], ...] = (
    ("/v1/messages", AnthropicVoice()),
    ("/api/", OllamaVoice()),
)


def voice_of(path: str) -> Voice:
    """How errors are said to who asks for `path`, also where it does not exist."""
    return next((voice for begin, voice in _VOICES if path.startswith(begin)), OpenAIVoice())

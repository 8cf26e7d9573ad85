"""The command line of the engine's container."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PLAIN = re.compile(r"[A-Za-z0-9_./,:=@%+-]+")
_UNSPEAKABLE = frozenset("\"\\'`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Paths as the container sees them; folders may be relative to that of the proven weights.

    `model_dir`: of config.json and the tokenizer; None: the engine makes them from the weights' header.
    `threads`: that compute experts. `numa_copies`: a copy of the experts on every node.
    """

    gguf_dir: str
    rules_file: str
    threads: int
    context_tokens: int
    max_tokens: int
    chunk_tokens: int
    cpu_variant: str = "auto"
    numa_copies: bool = False
    model_dir: str | None = None


def arguments(command: Command) -> tuple[str, ...]:
    said: dict[str, str | int] = {
        "gguf_path": command.gguf_dir,
        "optimize_config_path": command.rules_file,
        # The engine's own thread is one of them, and computes nothing.
        "cpu_infer": command.threads + 1,
        "cache_lens": command.context_tokens,
        "max_new_tokens": min(command.max_tokens, command.context_tokens),
        "chunk_size": command.chunk_tokens,
        "cpu_variant": command.cpu_variant,
    }
    if command.model_dir is not None:
        said["model_path"] = command.model_dir
    flags = tuple(word for name, value in said.items() for word in (f"--{name}", str(value)))
    return (*flags, "--numa_copies") if command.numa_copies else flags


def as_line(words: Sequence[str]) -> str:
    """For Compose, which cuts a line into words as a shell does."""
    return " ".join(word if _PLAIN.fullmatch(word) else f'"{word}"' for word in words)


def fits_a_line(word: str) -> bool:
    """Quotes and backslashes have no spelling that an env file and a command line both keep."""
    return _UNSPEAKABLE.isdisjoint(word)

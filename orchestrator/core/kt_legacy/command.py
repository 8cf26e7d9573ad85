"""The command line of the engine's container."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Paths as the container sees them; folders may be relative to that of the proven weights.

    `threads`: that compute experts. `numa_copies`: a copy of the experts on every node.
    """

    model_dir: str
    gguf_dir: str
    rules_file: str
    threads: int
    context_tokens: int
    max_tokens: int
    chunk_tokens: int
    cpu_variant: str = "auto"
    numa_copies: bool = False


def arguments(command: Command) -> tuple[str, ...]:
    said = {
        "model_path": command.model_dir,
        "gguf_path": command.gguf_dir,
        "optimize_config_path": command.rules_file,
        # The engine's own thread is one of them, and computes nothing.
        "cpu_infer": command.threads + 1,
        "cache_lens": command.context_tokens,
        "max_new_tokens": min(command.max_tokens, command.context_tokens),
        "chunk_size": command.chunk_tokens,
        "cpu_variant": command.cpu_variant,
    }
    flags = tuple(word for name, value in said.items() for word in (f"--{name}", str(value)))
    return (*flags, "--numa_copies") if command.numa_copies else flags

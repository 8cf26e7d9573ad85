"""Where the engine's memory goes, on a host of several NUMA nodes: before anything is loaded."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from llamacpp_engine.settings import ConfigurationInvalid, Settings
from placing.policy import apply, listed
from placing.warm import warm


def check_memory(settings: Settings) -> None:
    """Raises ConfigurationInvalid where llama.cpp can't have its memory so."""
    policy, nodes = settings.memory_policy, settings.memory_nodes
    if policy == "replicate":
        raise ConfigurationInvalid(
            "llama.cpp can't keep a copy of the weights on each NUMA node",
            why=("MEMORY_POLICY is replicate, and all its threads use one copy",),
            next_step='set memory_policy = "interleave" in appliance.toml, '
            "then: python3 -m orchestrator up",
        )
    if (policy == "one node" and len(nodes) != 1) or (policy == "interleave" and not nodes):
        raise ConfigurationInvalid(
            "the memory policy can't be used",
            why=(f"MEMORY_POLICY {policy} with MEMORY_NODES {listed(nodes) or 'empty'}",),
            next_step="start this container through compose.yaml",
        )


def place(settings: Settings) -> bool:
    """Puts the policy in force for this process and its children. False, and said: it can't be."""
    policy, nodes = settings.memory_policy, settings.memory_nodes
    applied = apply(policy, nodes)
    if not applied.ok:
        _say(f"warning: the weights lie where the kernel puts them: {applied.why}")
    elif policy != "local":
        _say(f"memory policy: {policy}, nodes {listed(nodes)}")
    return applied.ok


def with_warm_weights(settings: Settings, files: Sequence[Path], engine: Callable[[], int]) -> int:
    """To be run in the engine's own process, which a signal ends at once: it may take minutes."""
    try:
        warm(files, settings.memory_policy, settings.memory_nodes, _say)
    except OSError as error:
        # Placement costs speed only; whether the files can be read at all, the engine finds out.
        _say(f"warning: the weights lie where they lay before: {error}")
    return engine()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()

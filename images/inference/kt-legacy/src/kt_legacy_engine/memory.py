"""Where the weights lie, on a host of several NUMA nodes: put in force before anything is loaded."""

from collections.abc import Callable, Sequence
from pathlib import Path

from kt_legacy_engine.pipe import Spec
from kt_legacy_engine.refusals import Refused
from kt_legacy_engine.settings import Settings
from placing.policy import apply, listed
from placing.warm import warm

Say = Callable[[str], None]


def check(settings: Settings, *, numa_copies: bool) -> None:
    """The policy and the command line come from one plan, and must agree."""
    policy, nodes = settings.memory_policy, settings.memory_nodes
    why = ""
    if (policy == "one node" and len(nodes) != 1) or (policy == "interleave" and not nodes):
        why = f"MEMORY_POLICY {policy} with MEMORY_NODES {listed(nodes) or 'empty'}"
    elif (policy == "replicate") != numa_copies:
        why = f"MEMORY_POLICY {policy} {'with' if numa_copies else 'without'} --numa_copies"
    if why:
        raise Refused(
            "the memory policy can't be used",
            why=(why,),
            next_step="start this container through compose.yaml",
        )


def place(settings: Settings, say: Say) -> None:
    """For this process and all that it starts. A policy that can't be had costs speed only."""
    policy, nodes = settings.memory_policy, settings.memory_nodes
    applied = apply(policy, nodes)
    if not applied.ok:
        say(f"warning: the weights lie where the kernel puts them: {applied.why}")
    elif policy != "local":
        say(f"memory policy: {policy}, nodes {listed(nodes)}")


def warm_weights(spec: Spec, say: Say) -> None:
    """In the process that loads them, which can be ended at any time: it may take minutes."""
    files: Sequence[Path] = tuple(map(Path, spec.shards))
    try:
        warm(files, spec.memory_policy, spec.memory_nodes, say)
    except OSError as error:
        # Whether the files can be read at all, the engine finds out.
        say(f"warning: the weights lie where they lay before: {error}")

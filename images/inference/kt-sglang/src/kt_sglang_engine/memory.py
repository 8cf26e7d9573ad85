"""Where memory comes from on a host of several NUMA nodes: put in force before anything is loaded.

KTransformers binds the experts to their nodes by itself. The policy is for all else: without it the
page cache and sglang's own memory fill the node that reads first. Nothing is warmed: the engine
copies every weight, so where the files' pages lie costs it nothing after the load.
"""

from collections.abc import Callable

from kt_sglang_engine.refusals import Refused, Verdict
from kt_sglang_engine.settings import Settings
from placing.policy import apply, listed


def check(settings: Settings) -> None:
    policy, nodes = settings.memory_policy, settings.memory_nodes
    why = ""
    if (policy == "one node" and len(nodes) != 1) or (policy == "interleave" and not nodes):
        why = f"MEMORY_POLICY {policy} with MEMORY_NODES {listed(nodes) or 'empty'}"
    elif policy == "replicate":
        why = "MEMORY_POLICY is replicate, and its pools share one copy of the experts"
    if why:
        raise Refused(
            Verdict(
                what="the memory policy can't be used",
                why=(why,),
                next_step='set memory_policy = "interleave" in appliance.toml, '
                "then: python3 -m orchestrator up",
            )
        )


def place(settings: Settings, say: Callable[[str], None]) -> None:
    """For this process and all that it starts. A policy that can't be had costs speed only."""
    policy, nodes = settings.memory_policy, settings.memory_nodes
    applied = apply(policy, nodes)
    if not applied.ok:
        say(f"warning: memory comes from where the kernel takes it: {applied.why}")
    elif policy != "local":
        say(f"memory policy: {policy}, nodes {listed(nodes)}")

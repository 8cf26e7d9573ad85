"""Findings for a profile on a host, with placement and budget written by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import hosts
from orchestrator.adapters.profile_files import read_profile
from orchestrator.core.arguments import Told, engine_arguments
from orchestrator.core.budget import Budget, Share, Term
from orchestrator.core.checks import host_findings, profile_findings
from orchestrator.core.checks.finding import Finding, Severity
from orchestrator.core.facts import HostFacts
from orchestrator.core.placement import MemoryPolicy, Placement
from orchestrator.core.profile import Profile
from orchestrator.core.settings import Settings, settle

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
GB = 10**9


def shipped(name: str) -> Profile:
    return read_profile(CONFIGS, name)


def placed(facts: HostFacts, nodes: Sequence[int], **changes: object) -> Placement:
    """On these nodes, one thread a core but for two."""
    threads = sum(node.physical_cores or 0 for node in facts.nodes or () if node.id in nodes)
    policy = MemoryPolicy.ONE_NODE if len(nodes) == 1 else MemoryPolicy.INTERLEAVE
    if len(facts.memory_nodes or ()) == 1:
        policy = MemoryPolicy.LOCAL
    fields: dict[str, object] = {
        "policy": policy,
        "nodes": tuple(nodes),
        "threads": max(1, threads - 2),
        "cpuset": "",
        "gpus": (0,),
        "gpu_experts": 0,
        "kv_tokens": 8192,
        "slots": 1,
        "context_tokens": 8192,
        "max_tokens": 4096,
        "memory_limit_bytes": 10**12,
        "shm_bytes": 1 << 30,
        "arguments": (),
        "reasons": {},
    }
    return Placement(**(fields | changes))  # type: ignore[arg-type]


def taking(
    facts: HostFacts, placement: Placement, *, fetch_gb: float, ram_gb: float, vram_gb: float = 0
) -> Budget:
    """So much of the disk, of all nodes used together, and of the first card; 1 GB of disk stays free."""
    fetched = (term("weights to fetch", fetch_gb),) if fetch_gb else ()
    parts = len(placement.nodes)
    local = placement.policy is MemoryPolicy.LOCAL
    free = {node.id: node.memory_free_bytes for node in facts.nodes or ()}
    ram = tuple(
        Share(
            where="RAM" if local else f"RAM node {node}",
            terms=(term("weights", ram_gb / parts),),
            have_bytes=facts.memory.available_bytes if local else free.get(node),
        )
        for node in placement.nodes
    )
    cards = (facts.gpus or ())[:1] if vram_gb else ()
    vram = tuple(
        Share(
            where=f"GPU {card.index}",
            terms=(term("attention", vram_gb),),
            have_bytes=max(card.mig_slices_bytes, default=card.memory_free_bytes),
        )
        for card in cards
    )
    free_disk = facts.disk.free_bytes if facts.disk else None
    return Budget(
        disk=Share(where="disk", terms=(*fetched, term("left free", 1)), have_bytes=free_disk),
        ram=ram,
        vram=vram,
    )


def term(name: str, size_gb: float) -> Term:
    return Term(name=name, size_bytes=int(size_gb * GB), formula="a test", certainty="estimate")


def judged(
    profile: Profile,
    facts: HostFacts,
    placement: Placement,
    budget: Budget,
    unreadable: Sequence[str] = (),
) -> dict[str, Finding]:
    settings = settle((profile.layer(),)).settings
    placement = placement if placement.arguments else told(profile, placement)
    return by_name(
        (
            *host_findings(facts, settings),
            *profile_findings(profile, settings, facts, placement, budget, unreadable),
        )
    )


def told(profile: Profile, placement: Placement) -> Placement:
    """With the arguments that follow from it."""
    given = Told(
        model_name="local-model",
        threads=placement.threads,
        nodes=placement.nodes,
        cards=1,
        gpu_experts=placement.gpu_experts,
        slots=placement.slots,
        context_tokens=placement.context_tokens,
        max_tokens=placement.max_tokens,
    )
    return replace(placement, arguments=engine_arguments(profile, given))


def of_host(facts: HostFacts, settings: Settings | None = None) -> dict[str, Finding]:
    return by_name(host_findings(facts, settings or Settings()))


def by_name(findings: Sequence[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def named(findings: dict[str, Finding], severity: Severity) -> set[str]:
    return {name for name, finding in findings.items() if finding.severity is severity}


def changed(part: str, facts: HostFacts | None = None, **changes: Any) -> HostFacts:
    """The box of the README with one thing amiss. `part`: "" for a fact of the host itself."""
    facts = facts or hosts.rtx4090_480gb_two_sockets()
    if not part:
        return facts.model_copy(update=changes)
    return facts.model_copy(update={part: getattr(facts, part).model_copy(update=changes)})


def flagship(facts: HostFacts, **placement: Any) -> dict[str, Finding]:
    """On both nodes, with 404.4 GB to fetch, 395 GB of RAM and 14 GB of VRAM to take."""
    where = placed(facts, (0, 1), **placement)
    budget = taking(facts, where, fetch_gb=404.4, ram_gb=395, vram_gb=14)
    return judged(shipped("deepseek-r1-q4km"), facts, where, budget)


def on_one_node(profile: Profile, facts: HostFacts) -> dict[str, Finding]:
    where = placed(facts, (0,))
    return judged(profile, facts, where, taking(facts, where, fetch_gb=0, ram_gb=1, vram_gb=1))

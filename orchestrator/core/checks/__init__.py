"""Every check of a host and of a profile on it. Each yields one finding, also where all is well."""

from collections.abc import Sequence

from orchestrator.core.budget import Budget
from orchestrator.core.checks import (
    cards,
    cpu,
    docker,
    engine,
    fit,
    gpu,
    layout,
    memory,
    speed,
    system,
)
from orchestrator.core.checks.finding import Finding
from orchestrator.core.facts import HostFacts
from orchestrator.core.placement import Placement
from orchestrator.core.profile import Profile
from orchestrator.core.settings import Settings


def host_findings(facts: HostFacts, settings: Settings) -> tuple[Finding, ...]:
    """What is true of the host whatever the profile."""
    return (
        system.operating_system(facts),
        cpu.architecture(facts),
        cpu.avx2(facts),
        system.container(facts),
        system.wsl(facts),
        docker.docker(facts),
        docker.compose(facts),
        docker.buildx(facts),
        docker.sys_nice(facts),
        cpu.governor(facts),
        cpu.frequency(facts),
        cpu.cpu_limit(facts),
        layout.cgroup_limit(facts),
        layout.memory_only_nodes(facts),
        layout.node_balance(facts),
        memory.hugepages(facts),
        memory.thp(facts),
        memory.fragmentation(facts),
        memory.swap(facts),
        memory.numa_balancing(facts),
        memory.memlock(facts),
        gpu.gpu_driver(facts),
        gpu.gpu_lost(facts),
        gpu.ecc(facts),
        gpu.gpu_generation(facts),
        gpu.mig(facts),
        gpu.persistence(facts),
        docker.gpu_after_reload(facts),
        system.disk_kind(facts),
        system.ports(facts, settings),
        system.clock(facts),
        system.network(facts),
        system.image_registry(facts, settings),
    )


def profile_findings(  # noqa: PLR0913, PLR0917  # a fit hangs on all of these
    profile: Profile,
    settings: Settings,
    facts: HostFacts,
    placement: Placement,
    budget: Budget,
    unreadable: Sequence[str],
    trained_context_tokens: int | None = None,
) -> tuple[Finding, ...]:
    """What this profile needs of the host. `unreadable`: why its engine can't read its files.

    `trained_context_tokens`: None where the files do not say.
    """
    return (
        fit.disk(budget, settings, facts),
        fit.memory(profile, budget, facts),
        fit.memory_nodes(budget, facts),
        fit.memory_limit(budget, settings, placement),
        cards.gpu_count(profile, settings, placement, facts),
        cards.toolkit(profile, placement, facts),
        cards.vram(profile, placement, budget, facts),
        cards.long_output(profile, placement, budget, facts),
        cards.several_gpus(profile, settings, facts),
        cards.compute_capability(profile, placement, facts),
        cards.driver(profile, placement, facts),
        engine.cpu_instructions(profile, facts),
        engine.engine_image(profile),
        engine.also_needs(profile),
        engine.engine_reads(profile, unreadable),
        engine.engine_arguments(profile, placement, facts),
        engine.context(profile, settings, budget, trained_context_tokens),
        speed.threads(placement, facts),
        speed.inference_cpus(settings, facts),
        speed.memory_policy(placement, facts),
        speed.load_time(profile, settings, facts),
        fit.sources(profile, budget, settings, facts),
        engine.profile_status(profile),
    )

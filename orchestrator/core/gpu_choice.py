"""Which of the host's cards a profile runs on."""

from collections.abc import Sequence

from orchestrator.core.facts import Gpu, HostFacts
from orchestrator.core.profile import Engine, Profile
from orchestrator.core.settings import Settings


def choose_gpus(
    profile: Profile, settings: Settings, facts: HostFacts
) -> tuple[tuple[int, ...], str]:
    """Indices, and why these."""
    if profile.engine is Engine.LLAMACPP or profile.needs.vram is None:
        on_cpu = f"{profile.engine.value} runs {profile.name} on the CPU"
        return (), f"{_unused(facts.gpus)}: {on_cpu}" if facts.gpus else on_cpu
    wanted = max(1, profile.needs.gpus)
    if settings.gpus:
        chosen = tuple(dict.fromkeys(int(index) for index in settings.gpus.split(",")))
        # Its rules place layers on so many cards and no more: others would stay empty.
        if profile.engine is Engine.KT_LEGACY and len(chosen) > wanted:
            return chosen[:wanted], f"of gpus = {settings.gpus} as many as its rules use: {wanted}"
        return chosen, f"as set: gpus = {settings.gpus}"
    if not facts.gpus:
        return (), "the host has no card" if facts.gpus == () else "its cards are not known"
    whole = [gpu for gpu in facts.gpus if not gpu.mig]
    # By size and not by what is free: once the engine runs, its own card has least.
    largest = sorted(whole, key=lambda gpu: (-(gpu.memory_bytes or 0), gpu.index))[:wanted]
    if not largest:
        return (), "MIG cuts every card of this host, and a slice is not used"
    found = ", ".join(_size(gpu) for gpu in largest)
    return tuple(sorted(gpu.index for gpu in largest)), f"the largest: {found}"


def _unused(gpus: Sequence[Gpu]) -> str:
    if len(gpus) > 1:
        return f"{len(gpus)} cards are not used"
    return f"the {gpus[0].name or 'card'} is not used"


def _size(gpu: Gpu) -> str:
    size = "an unknown amount" if gpu.memory_bytes is None else f"{gpu.memory_bytes / 1e9:.1f} GB"
    return f"card {gpu.index} has {size}"

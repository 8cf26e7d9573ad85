"""Which of the host's cards a profile runs on."""

from collections.abc import Callable, Iterator, Sequence

from orchestrator.core.facts import Gpu, HostFacts
from orchestrator.core.profile import Engine, Profile
from orchestrator.core.room import card_room
from orchestrator.core.settings import Settings

# Of so many cards, the bytes that each would hold. (): that can't be told.
NeedOf = Callable[[int], tuple[int, ...]]


def choose_gpus(  # noqa: PLR0911 - an answer each
    profile: Profile, settings: Settings, facts: HostFacts, need_of: NeedOf
) -> tuple[tuple[int, ...], str]:
    """Indices, and why these. `need_of`: of a profile that runs on the CPU where no card has room."""
    if profile.may_use_gpu:
        return _with_room(profile, settings, facts, need_of)
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
    if facts.gpus is None:
        # Given none, the engine says no more than that, and nobody looks at what ails the driver.
        return tuple(range(wanted)), f"its cards are not known: the first {wanted}"
    if not facts.gpus:
        return (), "the host has no card"
    whole = [gpu for gpu in facts.gpus if not gpu.mig]
    # By size and not by what is free: once the engine runs, its own card has least.
    largest = sorted(whole, key=lambda gpu: (-(gpu.memory_bytes or 0), gpu.index))[:wanted]
    if not largest:
        return (), "MIG cuts every card of this host, and a slice is not used"
    found = ", ".join(_size(gpu) for gpu in largest)
    return tuple(sorted(gpu.index for gpu in largest)), f"the largest: {found}"


def _with_room(
    profile: Profile, settings: Settings, facts: HostFacts, need_of: NeedOf
) -> tuple[tuple[int, ...], str]:
    """Named by the operator, or the fewest that surely have room. Those named are checked elsewhere."""
    if settings.gpus:
        chosen = tuple(dict.fromkeys(int(index) for index in settings.gpus.split(",")))
        return chosen, f"as set: gpus = {settings.gpus}; the routed experts stay in RAM"
    on_cpu = f"{profile.name} runs on the CPU"
    if why := next(_unusable(profile, facts), ""):
        return (), f"{why}: {on_cpu}"
    usable = sorted(
        (gpu for gpu in facts.gpus or () if _is_usable(gpu, profile)),
        key=lambda gpu: (-(card_room(gpu) or 0), gpu.index),
    )
    for count in range(1, len(usable) + 1):
        cards = sorted(usable[:count], key=lambda gpu: gpu.index)
        held = tuple(zip(cards, need_of(count), strict=False))
        if held and all(need <= (card_room(card) or 0) for card, need in held):
            have = ", ".join(f"{_of(card)}, {need / 1e9:.1f} are needed" for card, need in held)
            indices = tuple(card.index for card in cards)
            return indices, f"{have}; the routed experts stay in RAM"
    need = need_of(1)
    if not need:
        return (), f"what it would take of a card is not known before its files are: {on_cpu}"
    return (), f"{_of(usable[0])} of the {need[0] / 1e9:.1f} that it would take: {on_cpu}"


def _unusable(profile: Profile, facts: HostFacts) -> Iterator[str]:
    """Why no card of this host can be used, as far as that hangs on more than its size."""
    if facts.gpus is None:
        yield "the host's cards are not known"
    elif not facts.gpus:
        yield "the host has no card"
    elif not any(_is_usable(gpu, profile) for gpu in facts.gpus):
        yield f"{_unused(facts.gpus)}: cut by MIG, or older than the engine's kernels"
    least = profile.needs.driver_cuda
    knows = version_of(facts.driver_cuda)
    if least is not None and (knows is None or knows < least):
        yield f"the driver knows CUDA {facts.driver_cuda or '?'} and not {least[0]}.{least[1]}"
    ways = (facts.docker.nvidia_runtime, facts.docker.cdi)
    if not any(ways):
        if None in ways:
            yield "whether Docker can give a container the card is not known (check `toolkit`)"
        yield "Docker can't give a container the card (check `toolkit`)"


def _is_usable(gpu: Gpu, profile: Profile) -> bool:
    least = profile.needs.compute_capability or (0, 0)
    return not gpu.mig and gpu.compute_capability is not None and gpu.compute_capability >= least


def version_of(text: str | None) -> tuple[int, int] | None:
    """Of `12.8`."""
    major, _, minor = (text or "").partition(".")
    if not major.isdigit():
        return None
    return int(major), int(minor) if minor.isdigit() else 0


def _of(gpu: Gpu) -> str:
    room = card_room(gpu)
    return f"card {gpu.index} has {'?' if room is None else f'{room / 1e9:.1f}'} GB free"


def _unused(gpus: Sequence[Gpu]) -> str:
    if len(gpus) > 1:
        return f"{len(gpus)} cards are not used"
    return f"the {gpus[0].name or 'card'} is not used"


def _size(gpu: Gpu) -> str:
    size = "an unknown amount" if gpu.memory_bytes is None else f"{gpu.memory_bytes / 1e9:.1f} GB"
    return f"card {gpu.index} has {size}"

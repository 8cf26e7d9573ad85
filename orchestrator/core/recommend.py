"""Which profile suits this host best, and what stands in the way of each larger one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from orchestrator.core.advice import Advice
from orchestrator.core.checks.finding import Finding, Severity
from orchestrator.core.checks.fit import answers
from orchestrator.core.engines import ABILITIES
from orchestrator.core.facts import HostFacts
from orchestrator.core.inventory import WeightClass
from orchestrator.core.profile import Engine, Profile, Route, Status

# Measured: SmolLM2-135M Q4_1 (98 MB) at 110 tokens/s on 2 cores of llama.cpp reads 5.4 GB/s a core.
BYTES_PER_CORE_S = 5.4e9
READING_TOKENS_PER_S = 5.0  # about as fast as people read
# What nobody is to learn only after the download.
ESSENTIAL = frozenset({"memory", "disk", "vram", "cpu-instructions"})
OUT_OF_REACH = "unreachable: none of its sources answers from here"
TO_REACH_IT = (
    "a mirror (ORCH_HF_ENDPOINT, ORCH_MODELSCOPE_ENDPOINT) or a folder (ORCH_SOURCE_DIR) would do"
)
UNREACHABLE = f"{OUT_OF_REACH}; {TO_REACH_IT}"
NO_IMAGE = "engine-image"
# What ./install.sh or one command mends is no reason to recommend a smaller model.
MENDABLE = frozenset({NO_IMAGE, "docker", "compose", "buildx", "toolkit", "ports", "clock"})


@dataclass(frozen=True, slots=True)
class Pick:
    """A profile, and why this one, in one line. `chosen`: by somebody, now or before."""

    name: str
    reason: str
    chosen: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One profile's place in the ranking. `against`: why it is not taken, each with its numbers.

    `tokens_per_s`: at best, see the function. `to_add`: what would make it fit. `fits`: the hardware carries it, and its weights can be had.
    `startable`: this version can also start it.
    """

    advice: Advice
    against: tuple[str, ...]
    to_add: tuple[str, ...]
    fits: bool
    startable: bool
    tokens_per_s: float | None

    @property
    def name(self) -> str:
        return self.advice.profile.name


def rank(candidates: Iterable[Advice], facts: HostFacts) -> tuple[Ranked, ...]:
    """All of them, best first: by route, then by how far it is proven, then by its rank."""
    ordered = sorted(candidates, key=lambda advice: _merit(advice.profile))
    return tuple(_ranked(advice, facts) for advice in ordered)


def recommended(ranking: Sequence[Ranked]) -> Ranked | None:
    """The best that fits; None where nothing does."""
    return next((ranked for ranked in ranking if ranked.fits), None)


def startable(ranking: Sequence[Ranked]) -> Ranked | None:
    """The best that `up` can bring up by itself, here and now."""
    return next((ranked for ranked in ranking if ranked.fits and ranked.startable), None)


def least_demanding(ranking: Sequence[Ranked]) -> Ranked:
    """Of those that this version can start the one with least RAM: a host that it does not fit has no hope."""

    def demand(ranked: Ranked) -> tuple[bool, int]:
        return not ranked.startable, ranked.advice.profile.needs.memory.least_bytes

    return min(ranking, key=demand)


def is_tried(profile: Profile) -> bool:
    """Neither it nor its engine is an experiment."""
    return profile.status is not Status.EXPERIMENTAL and bool(ABILITIES[profile.engine].seen)


def _merit(profile: Profile) -> tuple[int, int, int, str]:
    routes, statuses = tuple(Route), tuple(Status)
    trusted = statuses.index(profile.status)
    # Between two ways to the same end the one that works wins; across routes the better model does,
    # except that an experiment is nobody's first choice, and so is an engine that nobody saw answer.
    return (
        routes.index(profile.route) + (0 if is_tried(profile) else len(routes)),
        trusted,
        profile.rank,
        profile.name,
    )


def _ranked(advice: Advice, facts: HostFacts) -> Ranked:
    blockers = [found for found in advice.blockers if found.check not in MENDABLE]
    unknown = [
        found
        for found in advice.findings
        if found.severity is Severity.UNKNOWN and found.check in ESSENTIAL
    ]
    slow = _too_slow(advice, facts)
    mendable = [found for found in advice.blockers if found.check in MENDABLE]
    unreachable = _unreachable(advice, facts)
    return Ranked(
        advice=advice,
        against=(
            *(_in_words(found) for found in (*blockers, *unknown)),
            *slow,
            *(f"{found.check}: {found.why.en}" for found in mendable),
            *unreachable,
        ),
        to_add=tuple(_to_add(advice, facts)),
        fits=not (blockers or unknown or slow or unreachable),
        tokens_per_s=tokens_per_s(advice, facts),
        startable=all(found.check != NO_IMAGE for found in mendable),
    )


def _to_add(advice: Advice, facts: HostFacts) -> Iterator[str]:
    budget, needs = advice.budget, advice.profile.needs
    lacking = needs.gpus - len(facts.gpus or ()) if facts.gpus is not None else 0
    for share in (budget.disk, *budget.ram, *(() if lacking > 0 else budget.vram)):
        if share.have_bytes is not None and not share.fits:
            missing = (share.need_bytes - share.have_bytes) / 1e9
            yield f"{missing:.1f} GB more {_of(share.where)}"
    if lacking > 0 and needs.vram is not None:
        cards = "an NVIDIA card" if lacking == 1 else f"{lacking} NVIDIA cards"
        # Upstream's least is no promise here: what the budget asks for is checked.
        most = max((share.need_bytes for share in budget.vram), default=0)
        least = max(most, needs.vram.least_bytes // needs.gpus)
        yield f"{cards} with {ceil(least / 1e9)} GB"


def _of(where: str) -> str:
    """`RAM node 0` is RAM on node 0, `GPU 0` VRAM on it."""
    if where.startswith("GPU"):
        return f"VRAM on {where}"
    return where.replace("RAM node", "RAM on node")


def _in_words(found: Finding) -> str:
    return f"{found.check}: needs {found.needed}, found {found.found}"


def tokens_per_s(advice: Advice, facts: HostFacts) -> float | None:
    """The most that the CPU can decode: every active weight in RAM is read once a token.

    None for KTransformers' engines, whose pace on a core is another, and where the cores are not known.
    """
    cores, profile, inventory = _cores(facts), advice.profile, advice.inventory
    if profile.engine is not Engine.LLAMACPP or not cores:
        return None
    if advice.placement.gpus and inventory is not None and inventory.shape.experts:
        used = inventory.shape.experts_used / inventory.shape.experts
        read = inventory.bytes_of(WeightClass.ROUTED_EXPERTS) * used
    else:
        model = profile.model
        active = (model.active_parameters or model.parameters) / model.parameters
        read = model.total_bytes * active
    return cores * BYTES_PER_CORE_S / read


def _cores(facts: HostFacts) -> float:
    """Physical cores, or the CPU time that a limit grants; 0 where they are not known."""
    cores = facts.cpu.physical_cores or 0
    return cores if facts.limits.cpus is None else min(cores, facts.limits.cpus)


def _too_slow(advice: Advice, facts: HostFacts) -> tuple[str, ...]:
    rate = tokens_per_s(advice, facts)
    if rate is None or rate >= READING_TOKENS_PER_S:
        return ()
    alone = "" if advice.placement.gpus else " without a GPU"
    at_best = f"too slow: at best {rate:.1f} tokens/s on {_cores(facts):g} cores{alone}, "
    return (at_best + f"slower than people read ({READING_TOKENS_PER_S:.0f})",)


def _unreachable(advice: Advice, facts: HostFacts) -> tuple[str, ...]:
    """Only what is surely out of reach, and only where weights are still to come."""
    if not any(term.name.startswith("weights") for term in advice.budget.disk.terms):
        return ()
    asked = tuple(answers(source, facts) for source in advice.profile.sources)
    if any(answer is not False for answer in asked):
        return ()
    return (UNREACHABLE,)

"""How many bytes of disk, of RAM per NUMA node and of VRAM per card a profile takes, term by term."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from orchestrator.core.facts import Gpu, HostFacts, NumaNode
from orchestrator.core.inventory import Inventory, WeightClass
from orchestrator.core.kt_legacy.form import Form
from orchestrator.core.placement import MemoryPolicy, Placement
from orchestrator.core.profile import Engine, Profile
from orchestrator.core.room import card_room, node_room
from orchestrator.core.settings import Settings
from orchestrator.core.terms import Certainty, Term, disk_terms, memory_terms
from orchestrator.core.vram import card_terms

__all__ = ["Budget", "Certainty", "Share", "Term", "budget_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The terms that one place has to hold: a disk, a NUMA node, a card. `have_bytes`: None unknown.

    `where`: "disk", "RAM node 0" or "RAM", "GPU 0".
    """

    where: str
    terms: tuple[Term, ...]
    have_bytes: int | None

    @property
    def need_bytes(self) -> int:
        return sum(term.size_bytes for term in self.terms)

    @property
    def fits(self) -> bool | None:
        return None if self.have_bytes is None else self.need_bytes <= self.have_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`ram`: its shares together are all of it, whether by node or in one."""

    disk: Share
    ram: tuple[Share, ...]
    vram: tuple[Share, ...]

    @property
    def shares(self) -> tuple[Share, ...]:
        return (self.disk, *self.ram, *self.vram)


def budget_of(  # noqa: PLR0913, PLR0917 - what a budget depends on
    profile: Profile,
    settings: Settings,
    placement: Placement,
    inventory: Inventory | None,
    facts: HostFacts,
    missing_bytes: int,
    *,
    locked: bool = True,
    form: Form | None = None,
) -> Budget:
    """`missing_bytes`: of the weights, what is not on this disk yet. `locked`: by their lock.

    `form`: which modules kt-legacy puts where; None: as its usual placement does.
    """
    on_card = bool(placement.gpus)
    ram = memory_terms(profile, settings, inventory, form, on_card=on_card)
    return Budget(
        disk=Share(
            where="disk",
            terms=tuple(disk_terms(profile, missing_bytes, locked=locked, on_card=on_card)),
            have_bytes=None if facts.disk is None else facts.disk.free_bytes,
        ),
        ram=tuple(_ram(placement, ram, facts)),
        vram=tuple(_vram(profile, settings, placement, inventory, facts, form)),
    )


def _ram(placement: Placement, terms: tuple[Term, ...], facts: HostFacts) -> Iterator[Share]:
    usable = facts.usable_memory_bytes
    nodes = {node.id: node for node in facts.nodes or ()}
    chosen = [nodes[number] for number in placement.nodes if number in nodes]
    if placement.policy is MemoryPolicy.LOCAL or not chosen:
        yield Share(where="RAM", terms=terms, have_bytes=usable)
        return
    for place, node in enumerate(chosen):
        yield Share(
            where=f"RAM node {node.id}",
            terms=tuple(_of_node(term, placement.policy, place, len(chosen)) for term in terms),
            have_bytes=_node_have(node, facts, len(chosen)),
        )


def _node_have(node: NumaNode, facts: HostFacts, count: int) -> int | None:
    """Unknown where only the host's is known: all of it can't be on each of its nodes.

    What a cgroup grants is for all the nodes together.
    """
    room, usable = node_room(node, facts), facts.usable_memory_bytes
    if room is None or usable is None:
        return room
    by_group = usable != facts.memory.available_bytes
    return min(room, usable // count if by_group else usable)


def _of_node(term: Term, policy: MemoryPolicy, place: int, count: int) -> Term:
    """An even part, the odd bytes on the first nodes; of what is replicated all of it."""
    if count == 1:
        return term
    if policy is MemoryPolicy.REPLICATE and term.name == WeightClass.ROUTED_EXPERTS.value:
        return replace(term, formula=f"a copy on each of {count} nodes: {term.formula}")
    return replace(
        term,
        size_bytes=term.size_bytes // count + (place < term.size_bytes % count),
        formula=f"1/{count} of {term.size_bytes:,}: {term.formula}",
    )


def _vram(  # noqa: PLR0913, PLR0917 - what a card's share depends on
    profile: Profile,
    settings: Settings,
    placement: Placement,
    inventory: Inventory | None,
    facts: HostFacts,
    form: Form | None,
) -> Iterator[Share]:
    # Llama.cpp does without; of the other engines it is to be seen what they lack.
    least = 0 if profile.engine is Engine.LLAMACPP else 1
    cards = max(least, len(placement.gpus))
    known = {gpu.index: gpu for gpu in facts.gpus or ()}
    for place, terms in enumerate(card_terms(profile, settings, inventory, cards, form)):
        index = placement.gpus[place] if place < len(placement.gpus) else None
        yield Share(
            where="GPU" if index is None else f"GPU {index}",
            terms=terms,
            have_bytes=_card_have(None if index is None else known.get(index), facts),
        )


def _card_have(gpu: Gpu | None, facts: HostFacts) -> int | None:
    """Nothing where the card surely is not there."""
    if gpu is not None:
        return card_room(gpu)
    return None if facts.gpus is None else 0

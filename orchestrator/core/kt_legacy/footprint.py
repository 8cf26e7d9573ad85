"""What a placement takes of RAM and of each card's memory, rule by rule, and what each rule saves."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.core.inventory import Inventory, ModelShape, Weight, WeightClass
from orchestrator.core.kt_legacy.form import Assignment, Form, Part
from orchestrator.core.kt_legacy.layout import deciding

# KTransformers' KLinearMarlin: 4 bits, and for 64 numbers a scale in 32 bits, since it packs what its
# reader makes of the file, which is in 32 bits.
MARLIN_BITS = 4.5
_KV_B = ("kv_b", "k_b", "v_b")
_PARTS: Mapping[WeightClass, Part] = {
    WeightClass.ROUTED_EXPERTS: "experts",
    WeightClass.EMBEDDING: "embedding",
    WeightClass.OUTPUT: "head",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes of weights that one rule puts somewhere, and those that it keeps out of elsewhere.

    `vram_bytes`: by the card's number. `ram_saved_bytes`: what the CPU would hold of the same experts.
    `vram_saved_bytes`: what a card would.
    """

    rule: Assignment
    ram_bytes: int
    vram_bytes: Mapping[int, int]
    ram_saved_bytes: int
    vram_saved_bytes: int


def footprints(form: Form, inventory: Inventory) -> tuple[Footprint, ...]:
    """One for each rule, in their order."""
    held: dict[int, list[Weight]] = {number: [] for number in range(len(form.rules))}
    for weight in inventory.weights:
        rule = rule_of(weight, form, inventory.shape)
        if rule is not None:
            held[form.rules.index(rule)].append(weight)
    return tuple(_footprint(rule, held[number]) for number, rule in enumerate(form.rules))


def pattern(rule: Assignment) -> str:
    """The modules that the rule is about, as the engine names them; `*`: all of one kind."""
    layers = "*" if rule.layers == "all" else rule.layers
    return {
        "layers": f"model.layers.{layers}",
        "experts": f"model.layers.{layers}.mlp.experts",
        "embedding": "model.embed_tokens",
        "head": "lm_head",
    }[rule.modules]


def rule_of(weight: Weight, form: Form, shape: ModelShape) -> Assignment | None:
    """None for what no rule covers, and for layers that only predict ahead: they are not loaded."""
    part = _PARTS.get(weight.kind, "layers")
    if weight.layer is not None and weight.layer >= shape.layers:
        return None
    if weight.layer is None:
        # What stands behind the layers and is no head, the last norm, is where the last layer is.
        return deciding(form, part, shape.layers - 1 if part == "layers" else 0)
    return deciding(form, part, weight.layer)


def bytes_on_card(weight: Weight, kernel: str) -> int:
    """Norms and routers as in the file; `kv_b`, of either form, in BF16, since the attention has it."""
    if weight.kind is WeightClass.OTHER:
        return weight.size_bytes
    if kernel == "marlin" and not is_plain(weight):
        return int(count(weight) * MARLIN_BITS / 8)
    return 2 * count(weight)


def bytes_in_ram(weight: Weight) -> int:
    """Experts are mapped from the file; of the rest torch makes 16 bits."""
    if weight.kind is WeightClass.ROUTED_EXPERTS:
        return weight.size_bytes
    return 2 * count(weight)


def is_plain(weight: Weight) -> bool:
    """No kernel packs it."""
    return len(weight.shape) == 1 or any(f"attn_{name}." in weight.name for name in _KV_B)


def count(weight: Weight) -> int:
    return math.prod(weight.shape)


def _footprint(rule: Assignment, weights: Iterable[Weight]) -> Footprint:
    ram = saved_ram = saved_vram = 0
    vram: Counter[int] = Counter()
    for weight in weights:
        if rule.gpu is None:
            ram += bytes_in_ram(weight)
            saved_vram += bytes_on_card(weight, _on_a_card(rule))
        else:
            vram[rule.gpu] += bytes_on_card(weight, rule.kernel)
            # Nothing but experts could be in RAM instead.
            saved_ram += bytes_in_ram(weight) if rule.modules == "experts" else 0
    return Footprint(
        rule=rule,
        ram_bytes=ram,
        vram_bytes=dict(vram),
        ram_saved_bytes=saved_ram,
        vram_saved_bytes=saved_vram,
    )


def _on_a_card(rule: Assignment) -> str:
    """The kernel that the same modules would have there."""
    return "marlin" if rule.modules == "experts" else "torch"


def held_in_ram(form: Form, inventory: Inventory) -> Iterator[Weight]:
    for weight in inventory.weights:
        rule = rule_of(weight, form, inventory.shape)
        if rule is not None and rule.gpu is None:
            yield weight

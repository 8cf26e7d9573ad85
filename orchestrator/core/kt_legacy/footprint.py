"""What a placement takes of RAM and of each card's memory, rule by rule. Weights only."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.core.kt_legacy.form import Assignment, Form, Part
from orchestrator.core.kt_legacy.layout import deciding
from orchestrator.core.kt_legacy.tree import Tree

# Marlin: 4 bits, and a 16-bit scale for each group of 64. Torch: 16 bits.
_BITS = {"marlin": 4 + 16 / 64, "torch": 16.0}


@dataclass(frozen=True, slots=True)
class Amount:
    """Of one part of one layer: how many weights, and the bytes that the file has for them."""

    parameters: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Footprint:
    """`gpu_bytes`: by the card's number."""

    ram_bytes: int
    gpu_bytes: Mapping[int, int]


def footprints(
    form: Form, tree: Tree, amounts: Mapping[tuple[Part, int], Amount]
) -> tuple[Footprint, ...]:
    """One for each rule, in their order. Embedding and head count as of layer 0."""
    ram: Counter[int] = Counter()
    gpu: dict[int, Counter[int]] = {number: Counter() for number in range(len(form.rules))}
    for (part, layer), amount in amounts.items():
        if layer >= tree.layers or (rule := deciding(form, part, layer)) is None:
            continue
        number = form.rules.index(rule)
        if rule.gpu is None:
            ram[number] += _bytes(rule, amount)
        else:
            gpu[number][rule.gpu] += _bytes(rule, amount)
    return tuple(Footprint(ram[n], dict(gpu[n])) for n in range(len(form.rules)))


def saved_bytes(
    form: Form, tree: Tree, amounts: Mapping[tuple[Part, int], Amount], rule: Assignment
) -> int:
    """RAM that `rule` saves by keeping experts on a GPU; 0 for any other."""
    if rule.modules != "experts" or rule.gpu is None:
        return 0
    return sum(
        amounts[("experts", layer)].file_bytes
        for layer in tree.expert_layers
        if ("experts", layer) in amounts and deciding(form, "experts", layer) is rule
    )


def _bytes(rule: Assignment, amount: Amount) -> int:
    if rule.kernel == "cpu":
        return amount.file_bytes
    return round(amount.parameters * _BITS[rule.kernel] / 8)

"""Which model files each engine can read: tensor types, architectures, and the names MLA goes by."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from orchestrator.core.inventory import Inventory, Weight, WeightClass
from orchestrator.core.profile import Engine
from wire.ggml_types import GGML_TYPES
from wire.gguf_checks import KNOWN_ARCHITECTURES


class KvB(str, Enum):
    """How a file holds MLA's second projection: as one tensor, or as one for keys, one for values."""

    ONE = "attn_kv_b"
    TWO = "attn_k_b and attn_v_b"


class Format(str, Enum):
    """GGUF_EXPERTS: routed experts only; all else comes from safetensors."""

    GGUF = "GGUF"
    GGUF_EXPERTS = "GGUF, routed experts only"
    SAFETENSORS = "safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """`expert_types`: of routed experts on the CPU. `other_types`: of all else it reads from a GGUF.

    `why_types`: who says that other types don't work. `has_image`: is there an image to run it in.
    `seen`: where it has been seen to answer; "" is nowhere.
    """

    formats: frozenset[Format]
    architectures: frozenset[str]
    expert_types: frozenset[str]
    other_types: frozenset[str]
    why_types: str
    kv_b: frozenset[KvB]
    has_image: bool
    seen: str


_ALL_TYPES = frozenset(name for name, _, _ in GGML_TYPES.values())
_BOTH = frozenset(KvB)
# What KTransformers' kernels are tested with and its maintainers stand by: standard quants.
_STANDARD = frozenset({"F32", "F16", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"})
_KT_TYPES = (
    "its maintainers support standard quants only: UD, TQ1, Q4_1 and BF16 fail to load, IQ gives "
    "garbage (kvcache-ai/ktransformers issues 1856, 1235, 782, 832)"
)

ABILITIES: Mapping[Engine, Abilities] = {
    Engine.LLAMACPP: Abilities(
        formats=frozenset({Format.GGUF}),
        architectures=KNOWN_ARCHITECTURES,
        expert_types=_ALL_TYPES,
        other_types=_ALL_TYPES,
        why_types="llama.cpp has no such type",
        kv_b=_BOTH,
        has_image=True,
        seen="on CPUs, by the tests of this project",
    ),
    Engine.KT_LEGACY: Abilities(
        formats=frozenset({Format.GGUF}),
        architectures=frozenset({"deepseek2"}),
        expert_types=_STANDARD,
        other_types=_STANDARD,
        why_types=_KT_TYPES,
        # The engine itself knows attn_kv_b only (issues 1195, 1333, 1347); our loader joins the two.
        kv_b=_BOTH,
        has_image=True,
        seen="on an H200, outside a container",
    ),
    Engine.KT_SGLANG: Abilities(
        formats=frozenset({Format.SAFETENSORS, Format.GGUF_EXPERTS}),
        architectures=frozenset({"deepseek2", "qwen3moe"}),
        expert_types=_STANDARD,
        other_types=_ALL_TYPES,  # it skips them
        why_types=_KT_TYPES,
        kv_b=_BOTH,  # likewise
        has_image=True,
        seen="",
    ),
}


def unreadable(engine: Engine, inventory: Inventory) -> tuple[str, ...]:
    """Every reason why this engine can't read these files, naming tensor, type and why."""
    return tuple(reasons(engine, ABILITIES[engine], inventory))


def kv_b_of(inventory: Inventory) -> frozenset[KvB]:
    """The forms that its layers have; none where the attention is not MLA."""
    parts = {weight.name.removesuffix(".weight").rpartition(".")[2] for weight in inventory.weights}
    one = {KvB.ONE} if "attn_kv_b" in parts else set()
    two = {KvB.TWO} if {"attn_k_b", "attn_v_b"} <= parts else set()
    return frozenset(one | two)


def reasons(engine: Engine, abilities: Abilities, inventory: Inventory) -> Iterator[str]:
    architecture = inventory.shape.architecture
    if architecture not in abilities.architectures:
        known = ", ".join(sorted(abilities.architectures))
        yield f"the architecture is {architecture}; {engine.value} here reads {known}"
    experts = [w for w in inventory.weights if w.kind is WeightClass.ROUTED_EXPERTS]
    others = [w for w in inventory.weights if w.kind is not WeightClass.ROUTED_EXPERTS]
    yield from _wrong_types(engine, abilities.expert_types, abilities.why_types, experts)
    yield from _wrong_types(engine, abilities.other_types, abilities.why_types, others)
    forms = kv_b_of(inventory)
    for form in sorted(forms - abilities.kv_b):
        known = " or ".join(sorted(abilities.kv_b))
        yield f"its layers hold {form.value}, where {engine.value} looks for {known}"
    if inventory.shape.kv_lora_rank and not forms:
        yield f"its attention is MLA, but no layer holds {' or '.join(sorted(KvB))}"
    if Format.GGUF_EXPERTS in abilities.formats and not experts:
        yield f"there are no routed experts, and {engine.value} reads nothing else from a GGUF"


def _wrong_types(
    engine: Engine, readable: frozenset[str], why: str, weights: Iterable[Weight]
) -> Iterator[str]:
    wrong: dict[str, list[str]] = {}
    for weight in weights:
        if weight.type not in readable:
            wrong.setdefault(weight.type, []).append(weight.name)
    for kind, (first, *more) in sorted(wrong.items()):
        named = f"{first} and {len(more)} more tensors are" if more else f"{first} is"
        yield f"{named} of type {kind}, which {engine.value} can't read: {why}"

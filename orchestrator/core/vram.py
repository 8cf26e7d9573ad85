"""The named amounts a profile takes on each of its cards, each with its formula: docs/budget.md."""

import math
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from orchestrator.core.inventory import Inventory, Weight, WeightClass
from orchestrator.core.kv import cached_tokens, kv_cache
from orchestrator.core.profile import Engine, Profile
from orchestrator.core.settings import Settings
from orchestrator.core.terms import MIB, Term

ON_CARD = (
    WeightClass.ATTENTION,
    WeightClass.SHARED_EXPERTS,
    WeightClass.DENSE,
    WeightClass.OUTPUT,
    WeightClass.OTHER,
)
# KTransformers' KLinearMarlin: 4 bits, and a 16-bit scale for 64 numbers.
MARLIN_BITS = 4.25
# The placement for images that were built without it.
WITHOUT_MARLIN = "single-gpu-no-marlin"
# Attention scores that our operator holds at once, in 32 bits: `SCORES` of kt_legacy_engine.mla.
SCORES = 1 << 24
_KV_B = ("kv_b", "k_b", "v_b")
HEADROOM = 10  # per cent
CONTEXT_BYTES = 869 * MIB


def card_terms(
    profile: Profile, settings: Settings, inventory: Inventory | None, cards: int
) -> tuple[tuple[Term, ...], ...]:
    """One tuple for each card. () where the engine uses none."""
    figure = profile.needs.vram
    if profile.engine is Engine.LLAMACPP or figure is None:
        return ()
    if inventory is None or profile.engine is Engine.KT_SGLANG:
        each = -(-figure.least_bytes // cards)
        formula = f"{figure.least_bytes:,} over {cards} card(s): {figure.source}"
        published = Term(
            name="engine, as published", size_bytes=each, formula=formula, certainty="documented"
        )
        return ((published,),) * cards
    return tuple(
        _with_headroom(_kt_legacy(profile, settings, inventory, card, cards))
        for card in range(cards)
    )


def _kt_legacy(
    profile: Profile, settings: Settings, inventory: Inventory, card: int, cards: int
) -> Iterator[Term]:
    """Layers are split evenly; what stands outside of them is on the last card, as the output is."""
    held = [w for w in inventory.weights if _card_of(w, inventory, cards) == card]
    options = profile.kt_legacy
    marlin = options is None or PurePosixPath(options.rules).stem != WITHOUT_MARLIN
    for kind in ON_CARD:
        if weights := [weight for weight in held if weight.kind is kind]:
            yield _weights(kind, weights, marlin=marlin)
    experts = [weight for weight in held if weight.kind is WeightClass.ROUTED_EXPERTS]
    if settings.gpu_experts and experts:
        yield _gpu_experts(settings.gpu_experts, experts, inventory)
    yield _kv(settings, inventory, card, cards)
    if options is not None:
        tokens = cached_tokens(settings.context_tokens, settings.slots)
        yield _activations(options.chunk_tokens, tokens, inventory)
    yield Term(
        name="CUDA context, kernels and graph",
        size_bytes=CONTEXT_BYTES,
        formula="measured: 869 MiB with a model of 19M parameters on an H200",
        certainty="estimate",
    )


def _card_of(weight: Weight, inventory: Inventory, cards: int) -> int:
    if weight.layer is None:
        return cards - 1
    return min(cards - 1, weight.layer * cards // inventory.shape.layers)


def _weights(kind: WeightClass, weights: Iterable[Weight], *, marlin: bool) -> Term:
    """The output is kept in BF16 by our placements; `kv_b`, of either form, by the attention."""
    packed = plain = kept = 0
    for weight in weights:
        if kind is WeightClass.OTHER:
            kept += weight.size_bytes
        elif kind is WeightClass.OUTPUT or not marlin or _is_plain(weight):
            plain += _count(weight)
        else:
            packed += _count(weight)
    parts = (
        (packed, f"{packed:,} parameters x {MARLIN_BITS} bits (4-bit copies of KLinearMarlin)"),
        (plain, f"{plain:,} parameters x 2 bytes (BF16)"),
        (kept, f"{kept:,} bytes as in the files"),
    )
    return Term(
        name=kind.value,
        size_bytes=int(packed * MARLIN_BITS / 8) + 2 * plain + kept,
        formula=" + ".join(text for number, text in parts if number),
        certainty="estimate",
    )


def _is_plain(weight: Weight) -> bool:
    return len(weight.shape) == 1 or any(f"attn_{name}." in weight.name for name in _KV_B)


def _count(weight: Weight) -> int:
    return math.prod(weight.shape)


def _gpu_experts(number: int, experts: Iterable[Weight], inventory: Inventory) -> Term:
    all_of_them = inventory.shape.experts
    parameters = sum(map(_count, experts))
    return Term(
        name="routed experts on the GPU",
        size_bytes=int(parameters * MARLIN_BITS / 8) * number // all_of_them,
        formula=f"{number} of {all_of_them} experts x {parameters:,} parameters x {MARLIN_BITS} bits",
        certainty="estimate",
    )


def _kv(settings: Settings, inventory: Inventory, card: int, cards: int) -> Term:
    layers = inventory.shape.layers
    here = sum(1 for layer in range(layers) if min(cards - 1, layer * cards // layers) == card)
    tokens = cached_tokens(settings.context_tokens, settings.slots)
    cache = kv_cache(Engine.KT_LEGACY, inventory)
    part = "" if cards == 1 else f", {here} of {layers} layers here"
    return Term(
        name="KV cache",
        size_bytes=tokens * cache.bytes_per_token * here // layers,
        formula=f"{tokens:,} tokens (context x slots) x {cache.bytes_per_token:,}: "
        f"{cache.formula}{part}",
        certainty="exact" if inventory.origin == "headers" else "derived",
    )


def _activations(chunk_tokens: int, cached: int, inventory: Inventory) -> Term:
    """The most that attention holds for a chunk, where it mixes what one block of keys adds.

    Of each head: queries plain, turned and absorbed; four results of 32 bits. Scores of a block.
    """
    shape = inventory.shape
    lora, rope = shape.kv_lora_rank, shape.rope_length
    of_head = 16 * lora + 2 * (2 * lora + rope) + 4 * shape.key_length + 2 * shape.value_length
    each = shape.heads * of_head + 16 * shape.hidden
    scores = min(SCORES, chunk_tokens * shape.heads * cached)
    return Term(
        name="activations",
        size_bytes=chunk_tokens * each + 4 * scores,
        formula=f"a chunk of {chunk_tokens} tokens x {each:,} bytes + {scores:,} scores x 4 bytes",
        certainty="estimate",
    )


def _with_headroom(terms: Iterable[Term]) -> tuple[Term, ...]:
    held = tuple(terms)
    total = sum(term.size_bytes for term in held)
    headroom = Term(
        name="headroom",
        size_bytes=total * HEADROOM // 100,
        formula=f"{HEADROOM} % of {total:,}: memory that torch keeps in pieces",
        certainty="estimate",
    )
    return (*held, headroom)

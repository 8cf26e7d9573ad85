"""The named amounts a profile takes on each of its cards, each with its formula: docs/budget.md."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from orchestrator.core.inventory import Inventory, Weight, WeightClass
from orchestrator.core.kt_legacy.footprint import (
    MARLIN_BITS,
    bytes_on_card,
    count,
    is_plain,
    rule_of,
)
from orchestrator.core.kt_legacy.form import Assignment, Form, Kernel, Part
from orchestrator.core.kt_legacy.layout import deciding
from orchestrator.core.kv import cached_tokens, kv_cache
from orchestrator.core.offload import ON_CARD, llamacpp_card
from orchestrator.core.profile import Engine, Profile
from orchestrator.core.settings import Settings
from orchestrator.core.terms import MIB, Term

# The placement for images that were built without it.
WITHOUT_MARLIN = "single-gpu-no-marlin"
# Attention scores that our operator holds at once, in 32 bits: `SCORES` of kt_legacy_engine.mla.
SCORES = 1 << 24
EXPERTS_ON_CARD = "routed experts on the GPU"
HEADROOM = 10  # per cent
CONTEXT_BYTES = 869 * MIB
LOADING = "more while it loads"
LOADING_BYTES = 6
"""Of each number at once: 32 bits as read, and the 16 that are kept."""
PACKING_BYTES = 20
"""The same where it is packed into 4 bits."""


def card_terms(
    profile: Profile,
    settings: Settings,
    inventory: Inventory | None,
    cards: int,
    form: Form | None = None,
) -> tuple[tuple[Term, ...], ...]:
    """One tuple for each card. () where the engine uses none, and where it can't be told.

    `cards`: of llama.cpp none, unless it is placed on some. `form`: None: the usual placement.
    """
    if profile.engine is Engine.LLAMACPP:
        if inventory is None:
            return ()
        return tuple(llamacpp_card(settings, inventory, card, cards) for card in range(cards))
    figure = profile.needs.vram
    if figure is None:
        return ()
    if inventory is None or profile.engine is Engine.KT_SGLANG:
        each = -(-figure.least_bytes // cards)
        formula = f"{figure.least_bytes:,} over {cards} card(s): {figure.source}"
        published = Term(
            name="engine, as published", size_bytes=each, formula=formula, certainty="documented"
        )
        return ((published,),) * cards
    form = form or _usual(profile, inventory, cards)
    return tuple(
        _with_loading(
            _with_headroom(_kt_legacy(profile, settings, inventory, card, form)),
            _held(inventory, card, form),
        )
        for card in range(max(cards, form.gpus))
    )


def _usual(profile: Profile, inventory: Inventory, cards: int) -> Form:
    """What nobody told otherwise: layers in as many runs as there are cards, the head on the last."""
    options, layers = profile.kt_legacy, inventory.shape.layers
    marlin = options is None or options.rules != WITHOUT_MARLIN
    kernel: Kernel = "marlin" if marlin else "torch"
    # The odd layer is on the last card, as in upstream's rules for two.
    firsts = [card * layers // cards for card in range(cards + 1)]
    runs = [
        Assignment(
            modules="layers",
            layers=f"{first}-{after - 1}",
            device=f"cuda:{card}",
            kernel=kernel,
            why="an even share",
        )
        for card, (first, after) in enumerate(pairwise(firsts))
    ]
    usual: dict[Part, tuple[str, Kernel]] = {
        "experts": ("cpu", "cpu"),
        "embedding": ("cpu", "torch"),
        "head": (f"cuda:{cards - 1}", "torch"),
    }
    rest = [
        Assignment(modules=part, device=device, kernel=kernel, why="usual")
        for part, (device, kernel) in usual.items()
    ]
    return Form(name="usual", summary="usual", rules=(*runs, *rest))


def _kt_legacy(
    profile: Profile, settings: Settings, inventory: Inventory, card: int, form: Form
) -> Iterator[Term]:
    options = profile.kt_legacy
    held = _held(inventory, card, form)
    for kind in ON_CARD:
        if weights := [(weight, rule) for weight, rule in held if weight.kind is kind]:
            yield _weights(kind, weights)
    layers = _layers_on(card, form, inventory)
    if placed := [weight for weight, _ in held if weight.kind is WeightClass.ROUTED_EXPERTS]:
        yield _placed_experts(placed)
    yield _kv(settings, inventory, len(layers))
    if options is not None:
        tokens = cached_tokens(settings.context_tokens, settings.slots)
        yield _activations(options.chunk_tokens, tokens, inventory)
    yield Term(
        name="CUDA context, kernels and graph",
        size_bytes=CONTEXT_BYTES,
        formula="measured: 869 MiB with a model of 19M parameters on an H200",
        certainty="estimate",
    )


def _held(inventory: Inventory, card: int, form: Form) -> list[tuple[Weight, Assignment]]:
    return [
        (weight, rule)
        for weight in inventory.weights
        if (rule := rule_of(weight, form, inventory.shape)) is not None and rule.gpu == card
    ]


def _layers_on(card: int, form: Form, inventory: Inventory) -> list[int]:
    found = ((n, deciding(form, "layers", n)) for n in range(inventory.shape.layers))
    return [layer for layer, rule in found if rule is not None and rule.gpu == card]


def _weights(kind: WeightClass, weights: Iterable[tuple[Weight, Assignment]]) -> Term:
    """The output is kept in BF16 by our placements; `kv_b`, of either form, by the attention."""
    packed = plain = kept = 0
    for weight, rule in weights:
        if kind is WeightClass.OTHER:
            kept += weight.size_bytes
        elif rule.kernel != "marlin" or is_plain(weight):
            plain += count(weight)
        else:
            packed += count(weight)
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


def _placed_experts(experts: Sequence[Weight]) -> Term:
    """All of some layers, as the rules say."""
    parameters = sum(map(count, experts))
    layers = len({weight.layer for weight in experts})
    return Term(
        name=EXPERTS_ON_CARD,
        size_bytes=int(parameters * MARLIN_BITS / 8),
        formula=f"all of {layers} layers, by the rules: {parameters:,} parameters x "
        f"{MARLIN_BITS} bits",
        certainty="estimate",
    )


def _kv(settings: Settings, inventory: Inventory, here: int) -> Term:
    """`here`: of how many layers the card holds it."""
    layers = inventory.shape.layers
    tokens = cached_tokens(settings.context_tokens, settings.slots)
    cache = kv_cache(Engine.KT_LEGACY, inventory)
    part = "" if here == layers else f", {here} of {layers} layers here"
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


def _with_loading(
    serving: tuple[Term, ...], held: Sequence[tuple[Weight, Assignment]]
) -> tuple[Term, ...]:
    """What is loaded last is there more than once, beside all else on the card.

    The reader makes 32 bits of it, beside which are the 16 that `KLinearTorch.load` keeps, or the five
    arrays of 32 bits that `KLinearMarlin.load` packs. The output layer, the last of all, was measured on
    an H200, beside layers with Marlin and without (tests/gpu/measured/marlin-loading.json); what a card
    without it needs is by the source alone. Which layer is the last is left out: any may be.
    """
    weights = sum(bytes_on_card(weight, rule.kernel) for weight, rule in held)
    matrices = [
        (_loading(weight, rule) - bytes_on_card(weight, rule.kernel), weight)
        for weight, rule in held
        # Experts are loaded one by one.
        if len(weight.shape) == 2 and weight.kind is not WeightClass.OTHER  # noqa: PLR2004
    ]
    if not matrices:
        return serving
    beyond, largest = max(matrices, key=lambda pair: pair[0])
    more = weights + beyond + CONTEXT_BYTES - sum(term.size_bytes for term in serving)
    if more <= 0:
        return serving
    loading = Term(
        name=LOADING,
        size_bytes=more,
        formula=f"{largest.name} takes {beyond:,} bytes more than it keeps, beside {weights:,} of "
        f"weights and {CONTEXT_BYTES:,} for CUDA, less all of the above",
        certainty="derived",
    )
    return (*serving, loading)


def _loading(weight: Weight, rule: Assignment) -> int:
    packed = rule.kernel == "marlin" and not is_plain(weight)
    packed = packed and weight.kind is not WeightClass.OUTPUT
    return count(weight) * (PACKING_BYTES if packed else LOADING_BYTES)


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

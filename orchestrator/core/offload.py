"""What llama.cpp holds on a card where the routed experts stay in RAM, term by term: docs/budget.md."""

from collections.abc import Iterator

from orchestrator.core.inventory import Inventory, Weight, WeightClass
from orchestrator.core.kv import cached_tokens, has_whole_kv_b, kv_cache
from orchestrator.core.profile import Engine
from orchestrator.core.settings import Settings
from orchestrator.core.terms import BATCH_TOKENS, MIB, Certainty, Term, activations_width

ON_CARD = (
    WeightClass.ATTENTION,
    WeightClass.SHARED_EXPERTS,
    WeightClass.DENSE,
    WeightClass.OUTPUT,
    WeightClass.OTHER,
)
CONTEXT = "CUDA context and kernels"
CONTEXT_BYTES = 800 * MIB
HEADROOM = 5  # per cent


def llamacpp_card(
    settings: Settings, inventory: Inventory, card: int, cards: int
) -> tuple[Term, ...]:
    held = tuple(_held(settings, inventory, card, cards))
    total = sum(term.size_bytes for term in held)
    headroom = Term(
        name="headroom",
        size_bytes=total * HEADROOM // 100,
        formula=f"{HEADROOM} % of {total:,}: buffers that CUDA rounds up, and what kernels ask for",
        certainty="estimate",
    )
    return (*held, headroom)


def _held(settings: Settings, inventory: Inventory, card: int, cards: int) -> Iterator[Term]:
    weights = [w for w in inventory.weights if _card_of(w, inventory, cards) == card]
    for kind in ON_CARD:
        if of_kind := [weight for weight in weights if weight.kind is kind]:
            yield Term(
                name=kind.value,
                size_bytes=sum(weight.size_bytes for weight in of_kind),
                formula=f"of {len(of_kind)} tensors, as in the files",
                certainty=_certainty(inventory),
            )
    yield _kv(settings, inventory, card, cards)
    yield _compute_buffer(settings, inventory)
    if copied := _copied_experts(weights):
        yield Term(
            name="experts for long prompts",
            size_bytes=sum(weight.size_bytes for weight in copied),
            formula=f"copies of {' and '.join(weight.name for weight in copied)}: batches of 32 tokens "
            "or more are computed on the card",
            certainty="estimate",
        )
    yield Term(
        name=CONTEXT,
        size_bytes=CONTEXT_BYTES,
        formula="800 MiB: 727 measured with a model of 19M parameters on an H200 (driver 580, CUDA "
        "13.0), and a tenth for other cards",
        certainty="estimate",
    )


def _card_of(weight: Weight, inventory: Inventory, cards: int) -> int | None:
    """Layers and the output, in as many even parts as there are cards. The embedding is in RAM."""
    if weight.kind is WeightClass.EMBEDDING:
        return None
    return _card_of_layer(
        inventory.shape.layers if weight.layer is None else weight.layer, inventory, cards
    )


def _card_of_layer(layer: int, inventory: Inventory, cards: int) -> int:
    return min(cards - 1, layer * cards // (inventory.shape.layers + 1))


def _kv(settings: Settings, inventory: Inventory, card: int, cards: int) -> Term:
    layers = inventory.shape.layers
    here = sum(_card_of_layer(layer, inventory, cards) == card for layer in range(layers))
    tokens = cached_tokens(settings.context_tokens, settings.slots)
    cache = kv_cache(Engine.LLAMACPP, inventory)
    part = "" if cards == 1 else f", {here} of {layers} layers here"
    return Term(
        name="KV cache",
        size_bytes=tokens * cache.bytes_per_token * here // layers,
        formula=f"{tokens:,} tokens (context x slots) x {cache.bytes_per_token:,}: "
        f"{cache.formula}{part}",
        certainty=_certainty(inventory),
    )


def _compute_buffer(settings: Settings, inventory: Inventory) -> Term:
    """As on the CPU; where CUDA has no fused attention for the heads, all scores of a batch as well."""
    context = cached_tokens(settings.context_tokens, 1)
    batch = min(BATCH_TOKENS, context * settings.slots)
    width = activations_width(inventory)
    fused = not has_whole_kv_b(inventory)
    scores = 0 if fused else inventory.shape.heads * context
    mask = (2 if fused else 4) * context
    why = "" if fused else f" + {inventory.shape.heads} heads x {context:,} scores x 4"
    return Term(
        name="compute buffer",
        size_bytes=batch * (4 * width + mask + 4 * scores),
        formula=f"{batch} tokens x ({width:,} activations x 4 bytes + {mask:,} of mask{why})",
        certainty="estimate",
    )


def _copied_experts(weights: list[Weight]) -> list[Weight]:
    """The two largest of a layer: one is computed with, and another size finds no room in its place."""
    experts = [weight for weight in weights if weight.kind is WeightClass.ROUTED_EXPERTS]
    by_size = {weight.size_bytes: weight for weight in reversed(experts)}
    return [by_size[size] for size in sorted(by_size, reverse=True)[:2]]


def _certainty(inventory: Inventory) -> Certainty:
    return "exact" if inventory.origin == "headers" else "derived"

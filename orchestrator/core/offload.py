"""What llama.cpp holds on a card where the routed experts stay in RAM, term by term: docs/budget.md."""

from collections.abc import Iterator

from orchestrator.core.inventory import Inventory, ModelShape, Weight, WeightClass
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
# ggml-cuda.cu: from so many tokens on it computes with weights that lie in RAM, from copies.
COPIED_FROM_TOKENS = 32
# ggml-cuda.cu, ggml_cuda_pool_leg: so much more is taken than a kernel asks for.
POOLED_PER_CENT = 105


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
    yield _compute_buffer(settings, inventory, card, cards)
    if has_whole_kv_b(inventory):
        yield _converted(settings, inventory.shape)
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


def _compute_buffer(settings: Settings, inventory: Inventory, card: int, cards: int) -> Term:
    """One buffer for all of a layer's steps (ggml-alloc.c): as large as the largest of them needs."""
    context = cached_tokens(settings.context_tokens, 1)
    batch = min(BATCH_TOKENS, context * settings.slots)
    fused = not has_whole_kv_b(inventory)
    mask = (2 if fused else 4) * context
    attention = _attention(settings, inventory, batch, mask)
    copied = _copied_experts(settings, inventory, card, cards)
    if not copied:
        return attention
    width = _beside_experts(inventory.shape)
    copies = sum(weight.size_bytes for weight in copied)
    experts = Term(
        name=attention.name,
        size_bytes=copies + batch * (4 * width + mask),
        formula=f"prompts are computed on the card, from copies: {copies:,} of "
        f"{' and '.join(weight.name for weight in copied)} + {batch} tokens x ({width:,} activations "
        f"x 4 bytes + {mask:,} of mask)",
        certainty=attention.certainty,
    )
    return max(attention, experts, key=lambda term: term.size_bytes)


def _attention(settings: Settings, inventory: Inventory, batch: int, mask: int) -> Term:
    """As on the CPU; without fused attention all scores of a batch too, and all values turned round."""
    width, shape = activations_width(inventory), inventory.shape
    each, values, why = 4 * width + mask, 0, ""
    if has_whole_kv_b(inventory):
        context = cached_tokens(settings.context_tokens, 1)
        each += 4 * shape.heads * context
        values = 2 * shape.heads * shape.value_length * context * settings.slots
        why = (
            f" + {shape.heads} heads x {context:,} scores x 4) + {values:,} of values, turned round"
        )
    return Term(
        name="compute buffer",
        size_bytes=batch * each + values,
        formula=f"{batch} tokens x ({width:,} activations x 4 bytes + {mask:,} of mask{why or ')'}",
        certainty="estimate",
    )


def _beside_experts(shape: ModelShape) -> int:
    """Numbers that a token takes beside the copy: what goes into its experts, and comes out of them."""
    routed = shape.experts_used * (shape.hidden + shape.expert_ff)
    return routed + shape.expert_ff + 4 * shape.hidden + 8


def _copied_experts(
    settings: Settings, inventory: Inventory, card: int, cards: int
) -> tuple[Weight, ...]:
    """The largest tensor: the next one is copied to its place (ggml-backend.cpp, a split for each).

    Not of the last layer, which is computed only for tokens whose output is wanted. The first card
    computes for all cards; of a layer of another card it may hold two sizes at once.
    """
    last = inventory.shape.layers - 1
    layers: dict[int, list[Weight]] = {}
    for weight in inventory.weights:
        if weight.kind is not WeightClass.ROUTED_EXPERTS or weight.layer is None or card:
            continue
        if weight.layer != last or settings.slots >= COPIED_FROM_TOKENS:
            layers.setdefault(weight.layer, []).append(weight)
    found = [
        _largest(experts, 1 if _card_of_layer(layer, inventory, cards) == 0 else 2)
        for layer, experts in layers.items()
    ]
    return max(found, key=lambda some: sum(weight.size_bytes for weight in some), default=())


def _largest(experts: list[Weight], count: int) -> tuple[Weight, ...]:
    """So many of different size."""
    by_size = {weight.size_bytes: weight for weight in reversed(experts)}
    return tuple(by_size[size] for size in sorted(by_size, reverse=True)[:count])


def _converted(settings: Settings, shape: ModelShape) -> Term:
    """What cuBLAS is given where attention is not fused: ggml_cuda_mul_mat_cublas_impl, op by op.

    Scores of a batch become F16, as does what they are multiplied into; keys become F32 before.
    """
    context = cached_tokens(settings.context_tokens, 1)
    batch = min(BATCH_TOKENS, context * settings.slots)
    scores = 2 * batch * shape.heads * (context + shape.value_length)
    keys = 4 * shape.heads * shape.key_length * context * settings.slots
    return Term(
        name="converted for cuBLAS",
        size_bytes=max(scores, keys) * POOLED_PER_CENT // 100,
        formula=f"the larger of {batch} tokens x {shape.heads} heads x ({context:,} scores + "
        f"{shape.value_length} values) x 2 bytes and {context * settings.slots:,} tokens x "
        f"{shape.heads} heads x {shape.key_length} of a key x 4, and 5 % more",
        certainty="estimate",
    )


def _certainty(inventory: Inventory) -> Certainty:
    return "exact" if inventory.origin == "headers" else "derived"

"""The named amounts a profile takes of disk and RAM, each with its formula. Sources: docs/budget.md."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from orchestrator.core.inventory import Inventory, Weight, WeightClass
from orchestrator.core.kt_legacy.footprint import held_in_ram
from orchestrator.core.kt_legacy.form import Form
from orchestrator.core.kv import cached_tokens, has_whole_kv_b, kv_cache
from orchestrator.core.profile import Engine, Profile
from orchestrator.core.settings import Settings

# exact: read from headers or defined by us. derived: computed from a public config where no header
# can be read. documented: what upstream says. estimate: a formula of ours, checked by measurements.
Certainty = Literal["exact", "derived", "documented", "estimate"]

MIB, GIB = 1 << 20, 1 << 30
BATCH_TOKENS = 512  # llama.cpp's n_ubatch: tokens it computes at once
GROUP_TOKENS = 1024  # KTransformers' GROUP_MAX_LEN: tokens its CPU experts take at once
# What llama.cpp's AVX2 code packs anew when it loads, where rows come in eights.
REPACKED_TYPES = frozenset({"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"})
ROWS_TOGETHER = 8

# Bytes of the images, measured: all of the CPU stack, and those of the KTransformers engines.
_STACK_IMAGES = 1_290_000_000
_ENGINE_IMAGES = {
    Engine.LLAMACPP: 0,
    Engine.KT_LEGACY: 5_430_000_000,
    Engine.KT_SGLANG: 12_200_000_000,
}
# Measured: 842 MB with the kernels of one kind of card.
LLAMACPP_CUDA_IMAGE = 850_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One named amount. `formula`: how it comes about, with its numbers, as a person would check it."""

    name: str
    size_bytes: int
    formula: str
    certainty: Certainty


def disk_terms(
    profile: Profile, missing_bytes: int, *, locked: bool, on_card: bool
) -> Iterator[Term]:
    """Those that are still to come: where no weights are missing, the images are there as well.

    `locked`: the files' sizes are known one by one, and not just published as a sum.
    """
    if missing_bytes:
        yield Term(
            name="weights to fetch",
            size_bytes=missing_bytes,
            formula="bytes of the locked files that are not on this disk; of a .part file its holes"
            if locked
            else f"as published: {profile.model.source}",
            certainty="exact" if locked else "documented",
        )
        engine = _ENGINE_IMAGES[profile.engine]
        if profile.engine is Engine.LLAMACPP and on_card:
            engine = LLAMACPP_CUDA_IMAGE
        yield Term(
            name="images",
            size_bytes=_STACK_IMAGES + engine,
            formula=f"measured: {_STACK_IMAGES:,} for the stack + {engine:,} more for "
            f"{profile.engine.value}; on this disk where Docker keeps them here",
            certainty="estimate",
        )
    yield Term(
        name="left free",
        size_bytes=GIB,
        formula="1 GiB, which the download never touches",
        certainty="exact",
    )


def memory_terms(
    profile: Profile,
    settings: Settings,
    inventory: Inventory | None,
    form: Form | None = None,
    *,
    on_card: bool = False,
) -> tuple[Term, ...]:
    """RAM of one copy: the engine's, the other services', and what is left to the system.

    `form`: of kt-legacy, where its experts are; None: all of them in RAM. `on_card`: of llama.cpp,
    whether all but the routed experts is on a card.
    """
    engine = tuple(_engine_terms(profile, settings, inventory, form, on_card=on_card))
    return (*engine, *_services(), _spare(engine))


def _engine_terms(
    profile: Profile,
    settings: Settings,
    inventory: Inventory | None,
    form: Form | None,
    *,
    on_card: bool,
) -> Iterator[Term]:
    if inventory is None or profile.engine is Engine.KT_SGLANG:
        figure = profile.needs.memory
        yield Term(
            name="engine, as published",
            size_bytes=figure.least_bytes,
            formula=figure.source,
            certainty="documented",
        )
    elif profile.engine is Engine.LLAMACPP:
        yield from (_beside_card if on_card else _llamacpp)(settings, inventory)
    else:
        yield from _kt_legacy(inventory, form)


def _llamacpp(settings: Settings, inventory: Inventory) -> Iterator[Term]:
    yield from _weights(inventory)
    tokens = cached_tokens(settings.context_tokens, settings.slots)
    cache = kv_cache(Engine.LLAMACPP, inventory)
    yield Term(
        name="KV cache",
        size_bytes=tokens * cache.bytes_per_token,
        formula=f"{tokens:,} tokens (context x slots) x {cache.bytes_per_token:,}: {cache.formula}",
        certainty="exact" if inventory.origin == "headers" else "derived",
    )
    yield _compute_buffer(settings, inventory)
    yield from _program(settings, inventory)


def _beside_card(settings: Settings, inventory: Inventory) -> Iterator[Term]:
    """What stays in RAM is mapped: with a card, llama.cpp packs nothing anew."""
    for kind in (WeightClass.ROUTED_EXPERTS, WeightClass.EMBEDDING):
        yield Term(
            name=kind.value,
            size_bytes=inventory.bytes_of(kind),
            formula="mapped from the files: in the page cache, which counts against the container's "
            "limit",
            certainty="exact" if inventory.origin == "headers" else "derived",
        )
    yield _handed_over(settings, inventory)
    yield from _program(settings, inventory)
    yield Term(
        name="CUDA's own",
        size_bytes=640 * MIB,
        formula="640 MiB: the driver's and the libraries' part in RAM; 492 measured with an H200 (driver "
        "580, CUDA 13.0)",
        certainty="estimate",
    )


def _handed_over(settings: Settings, inventory: Inventory) -> Term:
    """What a batch takes on its way between RAM and card; fewer than 32 tokens have experts here."""
    context = cached_tokens(settings.context_tokens, 1)
    batch = min(BATCH_TOKENS, context * settings.slots)
    mask = (4 if has_whole_kv_b(inventory) else 2) * context
    return Term(
        name="compute buffer",
        size_bytes=batch * (8 * inventory.shape.hidden + mask + 24),
        formula=f"{batch} tokens x ({inventory.shape.hidden:,} hidden x 2 x 4 bytes + {mask:,} of mask "
        "+ 24 of positions)",
        certainty="estimate",
    )


def _program(settings: Settings, inventory: Inventory) -> Iterator[Term]:
    vocabulary = inventory.shape.vocabulary
    yield Term(
        name="output buffer",
        size_bytes=settings.slots * vocabulary * 4,
        formula=f"{settings.slots} slots x {vocabulary:,} tokens of vocabulary x 4 bytes",
        certainty="exact" if inventory.origin == "headers" else "derived",
    )
    yield Term(
        name="engine's own",
        size_bytes=55_000_000 + 2_400_000 * settings.slots + 480 * vocabulary,
        formula=f"measured: 55 MB of programs and libraries + 2.4 MB x {settings.slots} slots + "
        f"480 bytes x {vocabulary:,} tokens of vocabulary",
        certainty="estimate",
    )


def _weights(inventory: Inventory) -> Iterator[Term]:
    """Each byte once: mapped, or packed anew into memory of the engine's own."""
    for kind in WeightClass:
        weights = [weight for weight in inventory.weights if weight.kind is kind]
        packed = sum(weight.size_bytes for weight in weights if is_repacked(weight))
        size = sum(weight.size_bytes for weight in weights)
        if not weights:
            continue
        yield Term(
            name=kind.value,
            size_bytes=size,
            formula=f"of {len(weights)} tensors {size - packed:,} mapped from the files + {packed:,} "
            "packed anew into the engine's own memory",
            certainty="exact" if inventory.origin == "headers" else "derived",
        )


def is_repacked(weight: Weight) -> bool:
    """llama.cpp copies these at the load; it reads their place in the files once."""
    return (
        weight.type in REPACKED_TYPES
        and weight.kind not in {WeightClass.EMBEDDING, WeightClass.OTHER}
        and len(weight.shape) > 1
        and weight.shape[1] % ROWS_TOGETHER == 0
    )


def _compute_buffer(settings: Settings, inventory: Inventory) -> Term:
    """Activations of one batch at the widest place of a layer, and the mask over the context."""
    context = cached_tokens(settings.context_tokens, 1)
    batch = min(BATCH_TOKENS, context * settings.slots)
    width = activations_width(inventory)
    return Term(
        name="compute buffer",
        size_bytes=batch * (4 * width + 2 * context),
        formula=f"{batch} tokens x ({width:,} activations x 4 bytes + {context:,} of context x 2)",
        certainty="estimate",
    )


def activations_width(inventory: Inventory) -> int:
    """Numbers that a token takes at the widest place of a layer."""
    shape = inventory.shape
    feed_forward = 5 * shape.hidden + 3 * max(shape.dense_ff, shape.experts_used * shape.expert_ff)
    return max(feed_forward, _attention_width(inventory)) + 8


def _attention_width(inventory: Inventory) -> int:
    """What attention holds at once for one token: the residual stream, and of each head its parts."""
    shape = inventory.shape
    plain = shape.key_length - shape.rope_length  # of MLA: the part without a position
    if not shape.kv_lora_rank:
        of_heads = 2 * shape.heads * shape.key_length
        of_heads += shape.kv_heads * (shape.key_length + shape.value_length)
    elif has_whole_kv_b(inventory):
        of_heads = shape.heads * (3 * shape.key_length + plain + 2 * shape.value_length)
    else:
        cached = 2 * shape.kv_lora_rank + shape.rope_length
        of_heads = shape.heads * (shape.key_length + plain + cached)
    return 3 * shape.hidden + of_heads


def _kt_legacy(inventory: Inventory, form: Form | None) -> Iterator[Term]:
    shape = inventory.shape
    certainty: Certainty = "exact" if inventory.origin == "headers" else "derived"
    held = inventory.weights if form is None else held_in_ram(form, inventory)
    experts = [weight for weight in held if weight.kind is WeightClass.ROUTED_EXPERTS]
    yield Term(
        name=WeightClass.ROUTED_EXPERTS.value,
        size_bytes=sum(weight.size_bytes for weight in experts),
        formula=f"of {len(experts)} tensors, mapped from the files: they stay in the page cache, "
        "which counts against the container's limit",
        certainty=certainty,
    )
    yield Term(
        name=WeightClass.EMBEDDING.value,
        size_bytes=shape.vocabulary * shape.hidden * 2,
        formula=f"{shape.vocabulary:,} x {shape.hidden:,} x 2 bytes: on the CPU, as BF16",
        certainty="estimate",
    )
    yield Term(
        name="buffers of the CPU experts",
        size_bytes=(size := GROUP_TOKENS * _expert_row_bytes(inventory)),
        formula=f"{GROUP_TOKENS:,} tokens x {size // GROUP_TOKENS:,}: inputs and outputs of "
        f"{shape.experts_used} experts in F32 and Q8_K, one set for all layers",
        certainty="estimate",
    )
    yield Term(
        name="engine's own",
        size_bytes=GIB,
        formula="measured: 742 MiB of Python, torch 2.11 and CUDA 13.0 on an H200, taken as 1 GiB",
        certainty="estimate",
    )


def _expert_row_bytes(inventory: Inventory) -> int:
    """As KTransformers' moe.cpp asks for it; Q8_K takes 292 bytes for 256 numbers."""
    shape = inventory.shape
    hidden, width = shape.hidden, shape.expert_ff
    q8_hidden, q8_width = hidden * 292 // 256, width * 292 // 256
    each = 2 * q8_hidden + 3 * 4 * width + q8_width + 4 * hidden
    return 8 * hidden + 2 * q8_hidden + shape.experts_used * each


def _services() -> Iterator[Term]:
    yield Term(
        name="chat page",
        size_bytes=332_000_000,
        formula="measured: 332 MB at its start; its container may take 2 GiB",
        certainty="estimate",
    )
    yield Term(
        name="gateway",
        size_bytes=62_000_000,
        formula="measured: 62 MB at its start; its container may take 1 GiB",
        certainty="estimate",
    )


def _spare(engine: tuple[Term, ...]) -> Term:
    held = sum(term.size_bytes for term in engine)
    return Term(
        name="left to the system",
        size_bytes=256 * MIB + held // 100,
        formula="256 MiB + 1 % of the engine's: page tables, sockets, logs; the download is over "
        "when the engine starts",
        certainty="estimate",
    )

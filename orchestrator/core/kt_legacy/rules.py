"""The engine's own rule file, rendered from a layout: YAML, matched in order, first match wins."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from orchestrator.core.kt_legacy.form import Form
from orchestrator.core.kt_legacy.layout import Home, Layout, lay_out
from orchestrator.core.kt_legacy.tree import Kind, Tree

# Ours: the engine's own forgets what was cached before.
_ATTENTION = "kt_legacy_engine.operators.CachedAttention"
_OPERATORS = "ktransformers.operators"
_LINEAR_KERNELS = {"marlin": "KLinearMarlin", "torch": "KLinearTorch"}
_EXPERT_KERNELS = {"marlin": "KExpertsMarlin", "cpu": "KExpertsCPU"}

Value = str | int | Mapping[int, str]


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    operator: str
    options: Mapping[str, Value]
    kind: Kind | None = None
    recursive: bool = True


def render(form: Form, tree: Tree) -> str:
    """Only of a form without `problems`."""
    layout = lay_out(form, tree)
    # Without the summary: the engine looks for cards and kernels in the whole text.
    head = [
        f"# {form.name}",
        "# Generated from configs/placements: change it there.",
    ]
    rules = [_text(rule) for rule in _rules(layout, tree)]
    return "\n".join([*head, *rules]) + "\n"


def _rules(layout: Layout, tree: Tree) -> Iterator[_Rule]:
    for layers, home, experts in _alike(layout):
        yield from _of_layers(layers, home, experts, tree)
    last = layout.layers[-1].device
    yield _Rule("^model$", f"{_OPERATORS}.models.KDeepseekV2Model", _of_model(layout))
    yield _Rule(r"^model\.embed_tokens$", "default", _on("cpu"))
    yield _Rule(r"^model\.norm$", "default", _on(last))
    yield _Rule("^lm_head$", "default", _on(layout.head))


def _alike(layout: Layout) -> Iterator[tuple[list[int], Home, Home | None]]:
    """Runs of layers with the same homes; a layer without experts goes with those before it."""
    numbered = enumerate(zip(layout.layers, layout.experts, strict=True))
    for (home, experts), run in groupby(numbered, key=lambda one: one[1]):
        yield [layer for layer, _ in run], home, experts


def _of_layers(
    layers: Sequence[int], home: Home, experts: Home | None, tree: Tree
) -> Iterator[_Rule]:
    prefix = rf"^model\.layers\.({'|'.join(map(str, layers))})"
    device = _on(home.device)
    rotary = "YarnRotaryEmbeddingV3" if tree.yarn else "RotaryEmbeddingV3"
    yield _Rule(
        rf"{prefix}\.self_attn\.rotary_emb$", f"{_OPERATORS}.RoPE.{rotary}", device, Kind.ROTARY
    )
    # kv_b stays as it is: the attention takes it apart.
    yield _Rule(
        rf"{prefix}\.(?!self_attn\.kv_b_proj$).*$",
        f"{_OPERATORS}.linear.KTransformersLinear",
        device | {"generate_op": _LINEAR_KERNELS[home.kernel], "prefill_op": "KLinearTorch"},
        Kind.LINEAR,
    )
    if experts is not None:
        yield from _of_experts(prefix, home, experts)
    yield _Rule(rf"{prefix}\.self_attn$", _ATTENTION, device)
    yield _Rule(rf"{prefix}(\..*)?$", "default", device)


def _of_experts(prefix: str, home: Home, experts: Home) -> Iterator[_Rule]:
    device = _on(home.device)
    yield _Rule(rf"{prefix}\.mlp$", f"{_OPERATORS}.experts.KDeepseekV3MoE", device, Kind.MOE)
    yield _Rule(rf"{prefix}\.mlp\.gate$", f"{_OPERATORS}.gate.KMoEGate", device, Kind.ROUTER)
    yield _Rule(
        rf"{prefix}\.mlp\.experts$",
        f"{_OPERATORS}.experts.KTransformersExperts",
        {
            # Never loaded, since per_layer_prefill is off, but the engine wants one.
            "prefill_device": home.device,
            "prefill_op": "KExpertsTorch",
            "generate_device": experts.device,
            "generate_op": _EXPERT_KERNELS[experts.kernel],
            "out_device": home.device,
        },
        recursive=False,
    )


def _of_model(layout: Layout) -> dict[str, Value]:
    # 0: never load layer by layer for a long prompt. The name is upstream's.
    options: dict[str, Value] = {"per_layer_prefill_intput_threshold": 0}
    devices = [home.device for home in layout.layers]
    moves = {n: after for n, (before, after) in enumerate(pairwise(devices), 1) if after != before}
    return options | ({"transfer_map": moves} if moves else {})


def _on(device: str) -> dict[str, Value]:
    return {"generate_device": device, "prefill_device": device}


def _text(rule: _Rule) -> str:
    lines = ["- match:", f"    name: {json.dumps(rule.name)}"]
    if rule.kind is not None:
        lines.append(f"    class: {rule.kind.value}")
    lines += ["  replace:", f"    class: {rule.operator}", "    kwargs:"]
    for name, value in rule.options.items():
        if isinstance(value, Mapping):
            lines.append(f"      {name}:")
            lines += [f"        {key}: {json.dumps(one)}" for key, one in value.items()]
        else:
            lines.append(f"      {name}: {json.dumps(value)}")
    if not rule.recursive:
        lines.append("  recursive: false")
    return "\n".join(lines)

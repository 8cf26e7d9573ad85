"""A placement laid over the modules of one model: where each part of each layer comes to live."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.core.kt_legacy.form import Assignment, Form, Part
from orchestrator.core.kt_legacy.tree import Tree


@dataclass(frozen=True, slots=True)
class Home:
    device: str
    kernel: str


@dataclass(frozen=True, slots=True)
class Layout:
    """`experts`: None for layers that have none."""

    layers: tuple[Home, ...]
    experts: tuple[Home | None, ...]
    head: str


def deciding(form: Form, part: Part, layer: int) -> Assignment | None:
    return next((r for r in form.rules if r.modules == part and r.covers(layer)), None)


def lay_out(form: Form, tree: Tree) -> Layout:
    """Only of a form without `problems`."""
    return Layout(
        layers=tuple(_home(form, "layers", layer) for layer in range(tree.layers)),
        experts=tuple(
            _home(form, "experts", layer) if layer in tree.expert_layers else None
            for layer in range(tree.layers)
        ),
        head=_home(form, "head", 0).device,
    )


def problems(form: Form, tree: Tree, *, gpus: int | None, marlin: bool) -> Iterator[str]:
    """Why this placement can't serve this model here. `gpus`: cards of this host; None: unknown."""
    for number, rule in enumerate(form.rules, 1):
        where = f"rule {number} ({rule.modules} {rule.layers} on {rule.device})"
        yield from (f"{where}: {why}" for why in _impossible(rule, marlin=marlin))
        if not _layers_of(form, rule, tree, deciding_only=False):
            yield f"{where}: the model has no such modules: {_has(rule, tree)}"
        elif not _layers_of(form, rule, tree, deciding_only=True):
            yield f"{where}: it never applies, since rules before it cover all that it covers"
        else:
            yield from (f"{where}: {why}" for why in _twice(form, number - 1, tree))
            if rule.last is not None and rule.last >= tree.layers:
                yield f"{where}: the model's layers end with {tree.layers - 1}"
    yield from _homeless(form, tree)
    yield from _left_out(form)
    if gpus is not None and form.gpus > gpus:
        yield f"it takes {form.gpus} GPUs, and this host has {gpus}"
    yield from _back_and_forth(form, tree)


def _impossible(rule: Assignment, *, marlin: bool) -> Iterator[str]:
    possible = {
        "layers": {("gpu", "marlin"), ("gpu", "torch")},
        # The engine's own loader of 16-bit experts is broken: it loads one matrix three times.
        "experts": {("cpu", "cpu"), ("gpu", "marlin")},
        "embedding": {("cpu", "torch")},
        "head": {("gpu", "torch")},
    }[rule.modules]
    kind = "cpu" if rule.gpu is None else "gpu"
    if (kind, rule.kernel) not in possible:
        can = " or ".join(f"{kernel} on a {where}" for where, kernel in sorted(possible))
        yield f"{rule.modules} can be {can} only, not {rule.kernel} on {rule.device}"
    if rule.kernel == "marlin" and not marlin:
        yield "the image was built without Marlin"


def _twice(form: Form, number: int, tree: Tree) -> Iterator[str]:
    """Only `all` means "the rest": of two rules that name layers, one was meant to end before."""
    rule = form.rules[number]
    if rule.layers == "all":
        return
    for earlier, other in enumerate(form.rules[:number], 1):
        if other.modules == rule.modules:
            both = [n for n in _all(rule.modules, tree) if rule.covers(n) and other.covers(n)]
            if both:
                yield f"rule {earlier} ({other.layers}) covers {_listed(both)} as well"


def _layers_of(form: Form, rule: Assignment, tree: Tree, *, deciding_only: bool) -> list[int]:
    return [
        layer
        for layer in _all(rule.modules, tree)
        if rule.covers(layer) and (not deciding_only or deciding(form, rule.modules, layer) is rule)
    ]


def _all(part: Part, tree: Tree) -> range:
    """The layers that have such modules. Embedding and head are in none: 0 stands for them."""
    if part == "layers":
        return range(tree.layers)
    return tree.expert_layers if part == "experts" else range(1)


def _has(rule: Assignment, tree: Tree) -> str:
    if rule.modules in {"embedding", "head"}:
        return f"its {rule.modules} is in no layer: leave `layers` out"
    layers = _all(rule.modules, tree)
    return f"its layers with {rule.modules} are {layers.start} to {layers.stop - 1}"


def _homeless(form: Form, tree: Tree) -> Iterator[str]:
    parts: tuple[Part, ...] = ("layers", "experts", "embedding", "head")
    for part in parts:
        missing = [layer for layer in _all(part, tree) if deciding(form, part, layer) is None]
        if missing:
            of = f" of layers {_listed(missing)}" if part in {"layers", "experts"} else ""
            yield f"no rule says where {part}{of} live"


def _left_out(form: Form) -> Iterator[str]:
    """A card that it would be given for nothing."""
    used = {rule.gpu for rule in form.rules}
    if unused := [f"cuda:{card}" for card in range(form.gpus) if card not in used]:
        yield (
            f"it uses cuda:{form.gpus - 1} and not {', '.join(unused)}: cards are counted from 0 "
            "over those that the engine gets, which the setting gpus chooses"
        )


def _back_and_forth(form: Form, tree: Tree) -> Iterator[str]:
    """What a layer hands on would cross between cards again and again, at every token."""
    found = [deciding(form, "layers", layer) for layer in range(tree.layers)]
    devices = [rule.device for rule in found if rule is not None]
    changes = [after for before, after in pairwise(devices) if after != before]
    if len(changes) != len(set(changes) - set(devices[:1])):
        yield "its layers go back to a GPU that they have left: give each GPU one run of layers"


def _listed(layers: list[int]) -> str:
    return f"{layers[0]} to {layers[-1]}" if len(layers) > 1 else str(layers[0])


def _home(form: Form, part: Part, layer: int) -> Home:
    rule = deciding(form, part, layer)
    if rule is None:
        message = f"{part} of layer {layer} have no home"
        raise ValueError(message)
    return Home(rule.device, rule.kernel)

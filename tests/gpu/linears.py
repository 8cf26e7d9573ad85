"""Which of the engine's classes compute a model. Loaded beside it: it takes no RAM."""

from collections import Counter
from typing import Any


def linears(model: Any) -> dict[str, int]:
    """Class -> how many layers of the model it computes.

    The engine keeps a layer's operator as an attribute of the module that the layer replaced, which
    stays below it: both modules have the same one.
    """
    return _classes(model, "generate_linear")


def experts(model: Any) -> dict[str, int]:
    """Class -> of how many layers it computes the routed experts."""
    return _classes(model, "generate_experts")


def _classes(model: Any, attribute: str) -> dict[str, int]:
    found = (getattr(module, attribute, None) for module in model.modules())
    operators = {id(one): one for one in found if one is not None}
    return dict(Counter(type(one).__name__ for one in operators.values()))

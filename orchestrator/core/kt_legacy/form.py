"""A placement as people write it: which modules live on which device, by which kernel, and why."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_LAYERS = re.compile(r"all|(?P<one>\d+)|(?P<from>\d*)-(?P<to>\d*)")

Part = Literal["layers", "experts", "embedding", "head"]
Kernel = Literal["marlin", "torch", "cpu"]


def _range(text: str) -> str:
    if not _LAYERS.fullmatch(text) or text == "-":
        message = "layers are written all, 5, 3-29, 30- or -29"
        raise ValueError(message)
    return text


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Assignment(_Table):
    """For some modules of some layers. The first that fits decides, as in the engine.

    `modules`: layers (attention, dense and shared MLPs, norms, routers), experts (those that are
    chosen from), embedding or head. `kernel`: marlin (4 bits, on a GPU), torch (16 bits) or cpu (as
    the file has them).
    """

    modules: Part
    layers: Annotated[str, AfterValidator(_range)] = "all"
    device: str = Field(pattern=r"^(cpu|cuda:\d)$")
    kernel: Kernel
    why: str = Field(min_length=1)

    @property
    def gpu(self) -> int | None:
        return None if self.device == "cpu" else int(self.device.removeprefix("cuda:"))

    @property
    def last(self) -> int | None:
        """The last layer that it names; None where it names none."""
        found = _LAYERS.fullmatch(self.layers)
        named = (found["one"] or found["to"]) if found else None
        return int(named) if named else None

    def covers(self, layer: int) -> bool:
        found = _LAYERS.fullmatch(self.layers)
        if found is None or self.layers == "all":
            return self.layers == "all"
        if found["one"]:
            return layer == int(found["one"])
        return int(found["from"] or 0) <= layer <= int(found["to"] or layer)


class Form(_Table):
    """A file of `configs/placements`, named as it says."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    summary: str = Field(min_length=1)
    rules: Annotated[tuple[Assignment, ...], Field(min_length=1)]

    @property
    def gpus(self) -> int:
        """How many cards it takes."""
        return max((rule.gpu + 1 for rule in self.rules if rule.gpu is not None), default=0)

"""The images of the stack: what each is made from, and how it is named.

An image's tag is a digest of everything that goes into it, so a present tag is a current image.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

ROOTFS_REF = "appliance/rootfs:bookworm"  # made by images/base/rootfs.sh where no registry answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one image is built. Paths are relative to `images/`, the build context."""

    name: str
    dockerfile: str
    sources: Sequence[str]
    owned: bool = False  # holds a folder that belongs to the stack's uid:gid
    build_args: Mapping[str, str] = field(default_factory=dict)
    takes: str = ""  # what to be prepared for, where that is more than a minute or two
    for_cards: bool = False  # compiled for the host's own GPUs and no others


BASE = Recipe(name="base", dockerfile="base/Dockerfile", sources=("base",))
RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(name="weights", dockerfile="downloader/Dockerfile", sources=("downloader", "wire")),
        Recipe(
            name="inference-llamacpp",
            dockerfile="inference/llamacpp/Dockerfile",
            sources=("inference/llamacpp", "inference/placing", "wire"),
        ),
        Recipe(
            name="inference-llamacpp-cuda",
            dockerfile="inference/llamacpp/cuda.Dockerfile",
            # It fetches and installs with tools that lie there.
            sources=(
                "inference/llamacpp",
                "inference/placing",
                "inference/kt-legacy/build",
                "wire",
            ),
            takes="compiling it takes about an hour on two cores, and it downloads 0.7 GB",
            for_cards=True,
        ),
        Recipe(
            name="inference-kt-legacy",
            dockerfile="inference/kt-legacy/Dockerfile",
            sources=("inference/kt-legacy", "inference/placing", "wire"),
            build_args={"MARLIN": "1"},
            takes="compiling its kernels takes 17 to 20 minutes on two cores, and it downloads 3 GB",
        ),
        Recipe(
            name="inference-kt-sglang",
            dockerfile="inference/kt-sglang/Dockerfile",
            sources=(
                "inference/kt-sglang",
                "inference/kt-legacy/build/apt-install",
                "inference/placing",
                "wire",
            ),
            takes="it downloads 5.3 GB of packages and unpacks them, which takes 6 to 25 minutes",
        ),
        Recipe(name="gateway", dockerfile="gateway/Dockerfile", sources=("gateway", "wire")),
        Recipe(name="webui", dockerfile="webui/Dockerfile", sources=("webui",), owned=True),
        Recipe(
            name="prometheus",
            dockerfile="prometheus/Dockerfile",
            sources=("prometheus",),
            owned=True,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Images:
    """Which images a stack is made of. `cards`: architectures of the GPUs it uses, as in 86 89, or ""."""

    engine: str
    cards: str

    def of_service(self) -> dict[str, str]:
        """Service -> the name of its recipe. Llama.cpp has one for each way."""
        on_card = self.engine == "llamacpp" and self.cards
        return {
            "weights": "weights",
            "inference": f"inference-{self.engine}" + ("-cuda" if on_card else ""),
            "gateway": "gateway",
            "webui": "webui",
            "prometheus": "prometheus",
        }


def architectures(capabilities: Iterable[tuple[int, int]]) -> str:
    """Compute capabilities as compilers call them, each once: `86 89`."""
    return " ".join(f"{major}{minor}" for major, minor in sorted(set(capabilities)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One image to be built: `ref` names the result, `build_args` are all that varies by host."""

    recipe: Recipe
    ref: str
    build_args: Mapping[str, str] = field(default_factory=dict)


def a_build(recipe: Recipe, sources_digest: str, build_args: Mapping[str, str]) -> Build:
    """`sources_digest`: sha256 over the recipe's files. The tag covers it and the arguments."""
    said = "\n".join([sources_digest, *(f"{k}={v}" for k, v in sorted(build_args.items()))])
    tag = hashlib.sha256(said.encode()).hexdigest()[:12]
    return Build(recipe=recipe, ref=f"appliance/{recipe.name}:{tag}", build_args=build_args)

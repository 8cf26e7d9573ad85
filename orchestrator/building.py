"""`make images-gpu`: builds the engine's image of a profile as `up` would, and starts nothing.

    python3 -m orchestrator.building PROFILE [ARCHITECTURE...]

A machine without the card can build what is to run on one that has it. ARCHITECTURE: of a GPU, as in
86 or 90; llama.cpp's image is compiled for those that are named, and for the CPU where none is.
"""

import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from typing_extensions import assert_never

from orchestrator.adapters import profile_files
from orchestrator.adapters.host import ca_bundle
from orchestrator.adapters.images import DockerImages
from orchestrator.adapters.lookout import EngineLookout
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.gates import ImagePresent
from orchestrator.core.plan import (
    AssembleRootfs,
    BuildImage,
    PullImage,
    RemoveService,
    RunJob,
    StartService,
    Step,
)
from orchestrator.place import settings_without_profile
from orchestrator.prepare import engine_image_steps
from orchestrator.scripts import exit_code_of, say
from orchestrator.world import Images

ROOT = Path(__file__).resolve().parent.parent


ARCHITECTURE = re.compile(r"\d{2,3}[af]?")


def build_images(root: Path, name: str, cards: str) -> None:
    for card in cards.split():
        if not ARCHITECTURE.fullmatch(card):
            raise BadConfiguration(
                "the image can't be compiled for these cards",
                why=f"{card!r} is not written as compilers write it: 8.6 is 86",
                next_step='make image-llamacpp-cuda CARDS="86 90"',
            )
    _, settings, place = settings_without_profile(root, {})
    profile = profile_files.read_profile(place.configs, name)
    lookout = EngineLookout(settings.project)
    images = DockerImages(place.images, place.state / "logs", settings.debian_mirror, ca_bundle())
    make(engine_image_steps(profile.engine.value, cards, settings, place, lookout), lookout, images)


def make(steps: Iterable[Step], lookout: EngineLookout, images: Images) -> None:
    """What is not here yet, with a line for each that the tools say."""
    for step in steps:
        if isinstance(step.gate, ImagePresent) and lookout.has_image(step.gate.ref):
            say(f"{step.name}: {step.gate.ref} is here already")
            continue
        say(f"{step.name}: {step.cause}")
        began = time.monotonic()
        for line in _made(step, images):
            say(f"  {line}")
        say(f"{step.name}: made in {time.monotonic() - began:.0f} s")


def _made(step: Step, images: Images) -> Iterator[str]:
    match step.action:
        case AssembleRootfs(ref):
            return images.assemble_rootfs(ref)
        case PullImage(ref):
            return images.pull(ref)
        case BuildImage(build):
            return images.build(build)
        case RunJob() | StartService() | RemoveService():
            return iter(())
        case _:
            assert_never(step.action)


def main(name: str, cards: Sequence[str]) -> int:
    return exit_code_of(lambda: build_images(ROOT, name, " ".join(cards)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

"""`make sbom`: lists what each image of the stack holds, as CycloneDX JSON, one file an image.

    python3 -m orchestrator.sbom SYFT [NAME...]

SYFT: the program of that name. NAME: as in `inference-kt-legacy`, or a reference with its tag; none:
every image that is here, but those that are compiled for certain cards.
"""

import os
import sys
from collections.abc import Collection
from pathlib import Path

from orchestrator.adapters.images import inventory_of
from orchestrator.adapters.lookout import EngineLookout
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.images import BASE, RECIPES
from orchestrator.core.plan import owner_for
from orchestrator.place import settings_without_profile
from orchestrator.prepare import every_build
from orchestrator.scripts import exit_code_of, say

ROOT = Path(__file__).resolve().parent.parent


def list_images(root: Path, scanner: Path, names: Collection[str]) -> None:
    """Raises for a name that is none, and for an image that was asked for and is not here."""
    known = tuple(name for name in (BASE.name, *RECIPES) if not _is_for_cards(name))
    references = tuple(name for name in names if ":" in name)
    if unknown := sorted(set(names) - set(known) - set(references)):
        raise BadConfiguration(
            f"there is no image {unknown[0]!r}",
            why=f"there are {', '.join(known)}",
            next_step="make sbom",
        )
    _, settings, place = settings_without_profile(root, {})
    lookout = EngineLookout(settings.project)
    folder = place.state / "sbom"
    folder.mkdir(parents=True, exist_ok=True)
    builds = every_build(settings, place, lookout, owner_for(os.getuid(), os.getgid()))
    wanted = {build.recipe.name: build.ref for build in builds}
    if names:
        wanted = {name: ref for name, ref in wanted.items() if name in names}
        wanted |= {ref.rpartition(":")[0].replace("/", "-"): ref for ref in references}
    for name, ref in wanted.items():
        if lookout.has_image(ref):
            target = folder / f"{name}.json"
            target.write_text(inventory_of(ref, scanner), encoding="utf-8")
            say(f"{name}: {target}, of {ref}")
        elif names:
            raise _not_here(name, ref)
        else:
            say(f"{name}: {ref} is not built here, left out")


def _is_for_cards(name: str) -> bool:
    return name in RECIPES and RECIPES[name].for_cards


def _not_here(name: str, ref: str) -> BadConfiguration:
    return BadConfiguration(
        f"the image {name} can't be listed",
        why=f"{ref} is not built here",
        next_step="make images-gpu, or python3 -m orchestrator up",
    )


def main(scanner: str, names: Collection[str]) -> int:
    return exit_code_of(lambda: list_images(ROOT, Path(scanner).resolve(), names))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

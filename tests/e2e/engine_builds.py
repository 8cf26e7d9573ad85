"""An engine's image built as `up` would build it, but for what a test changes."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from orchestrator import building
from orchestrator.adapters.host import ca_bundle
from orchestrator.adapters.images import DockerImages
from orchestrator.adapters.lookout import EngineLookout
from orchestrator.core.plan import BuildImage
from orchestrator.place import settings_without_profile
from orchestrator.prepare import engine_image_steps

ROOT = Path(__file__).resolve().parents[2]


def image_of(profile: str, *cards: str) -> str:
    """The name of its engine's image, as `orchestrator.building` makes it where it is not here yet."""
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.building", profile, *cards],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": "images/wire/src"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (ref,) = set(re.findall(r"appliance/inference-[\w-]+:\w+", done.stdout))
    return str(ref)


@contextmanager
def built(
    engine: str, changed: Mapping[str, str], logs: Path, context: Path = ROOT / "images"
) -> Iterator[str]:
    """A name for the image, which goes again; the steps of its build stay in Docker's cache.

    `changed`: arguments of the build. `context`: where its Dockerfile and sources are.
    """
    _, settings, place = settings_without_profile(ROOT, {})
    lookout = EngineLookout(settings.project)

    def images(sources: Path) -> DockerImages:
        return DockerImages(sources, logs, settings.debian_mirror, ca_bundle())

    *before, last = engine_image_steps(engine, "", settings, place, lookout)
    building.make(before, lookout, images(place.images))
    assert isinstance(last.action, BuildImage)
    build = last.action.build
    ref = f"appliance/test-{build.recipe.name}:{uuid4().hex[:12]}"
    build = replace(build, ref=ref, build_args={**build.build_args, **changed})
    try:
        for line in images(context).build(build):
            print(line)
        yield ref
    finally:
        subprocess.run(["docker", "image", "rm", "-f", ref], capture_output=True, check=False)

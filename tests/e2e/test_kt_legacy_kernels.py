"""Kt-legacy's kernels for experts, compiled as its image compiles them: one variant, without the image.

All variants, in the image itself, are tried by `test_kt_legacy_image`.
"""

import base64
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import expert_layer
from e2e.engine_builds import ROOT, built
from expert_layer.drawn import HIDDEN, PROMPTS

# Any processor that the engine can run on can run it.
VARIANT = "avx2"
AT_MOST = 0.03
FOLDER = Path("inference/kt-legacy")
LAYER = Path(expert_layer.__file__).parent


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The real Dockerfile up to the CPU's kernels, for one variant: 2 minutes from nothing."""
    work = tmp_path_factory.mktemp("kernels")
    with built("kt-legacy", {"CPU_VARIANTS": VARIANT}, work, up_to_the_cpus_kernels(work)) as ref:
        yield ref


def up_to_the_cpus_kernels(work: Path) -> Path:
    """A context without torch, 2.7 GB, for which only the GPU's kernels ask."""
    source, context = ROOT / "images" / FOLDER, work / "images"
    shutil.copytree(source / "build", context / FOLDER / "build")
    shutil.copy(ROOT / "images/.dockerignore", context)
    for lock in source.glob("*.lock"):
        shutil.copy(lock, context / FOLDER)
    text = (source / "base.lock").read_text(encoding="utf-8")
    setuptools = re.search(r"^setuptools==.*\\\n(?: +--hash=.*\n)+", text, re.MULTILINE)
    assert setuptools
    (context / FOLDER / "base.lock").write_text(setuptools[0], encoding="utf-8")
    recipe = (source / "Dockerfile").read_text(encoding="utf-8")
    kept, found, _ = recipe.partition("\nFROM builder AS gpu\n")
    assert found
    (context / FOLDER / "Dockerfile").write_text(kept, encoding="utf-8")
    return context


def test_a_layer_of_experts_by_kernels_compiled_here_is_torchs_within_3_percent(
    image: str,
) -> None:
    assert_torchs(computed(image, VARIANT))


@pytest.mark.long
def test_the_kernels_for_avx2_need_no_avx512(tmp_path: Path) -> None:
    """On a processor that has it they take other ways, where they can. A Haswell is emulated."""
    context = up_to_the_cpus_kernels(tmp_path)
    with (context / FOLDER / "Dockerfile").open("a", encoding="utf-8") as recipe:
        recipe.write("RUN --mount=type=secret,id=ca sh /build/apt-install qemu-user\n")
    haswell = ("qemu-x86_64", "-cpu", "Haswell-noTSX")
    with built("kt-legacy", {"CPU_VARIANTS": "avx2 avx512"}, tmp_path, context) as image:
        assert_torchs(computed(image, "avx2", haswell))
        assert computed(image, "avx512", haswell).returncode == 128 + signal.SIGILL


def computed(
    image: str, variant: str, emulator: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    # Without --init the program is process 1, which its own SIGILL does not end.
    outside = ["--rm", "--init", "--network", "none", "--read-only", "--cap-drop", "ALL"]
    outside += ["-v", f"{LAYER}:/tests/expert_layer:ro", "-w", "/tests"]
    outside += ["-e", "LD_LIBRARY_PATH=/usr/local/cuda/lib"]
    within = [*emulator, "/opt/app/bin/python3", "-B", "-m", "expert_layer.compute"]
    return subprocess.run(
        ["docker", "run", *outside, image, *within, f"/out/{variant}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def assert_torchs(done: "subprocess.CompletedProcess[str]") -> None:
    """For each prompt, the mean difference."""
    assert done.returncode == 0, done.stdout + done.stderr
    found = floats(base64.b64decode(done.stdout.split()[-1]))
    with np.load(LAYER / "recorded.npz") as recorded:
        wanted = [recorded[str(tokens)].astype(np.float32) for tokens in PROMPTS]
    assert len(found) == sum(PROMPTS)
    for theirs in wanted:
        ours, found = found[: len(theirs)], found[len(theirs) :]
        error = np.abs(ours - theirs).mean() / np.abs(theirs).mean()
        # Exactly the same would mean that nothing was computed.
        assert 0 < error <= AT_MOST, f"{len(theirs)} tokens: {100 * error:.2f} %"


def floats(bfloat16: bytes) -> NDArray[np.float32]:
    """[tokens, HIDDEN]: a bfloat16 is the upper half of a float."""
    halves = np.frombuffer(bfloat16, dtype="<u2").astype(np.uint32)
    return (halves << 16).view(np.float32).reshape(-1, HIDDEN)

"""The image of kt-legacy, as far as a host without a GPU can prove it."""

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from e2e.engine_builds import built, image_of
from e2e.scenario import ROOT, Appliance
from gpu.engine import WITHOUT_MARLIN, rules, shipped
from gpu.forms import older
from gpu.proven import Weights
from kt_legacy_engine.arguments import VARIANTS
from kt_legacy_engine.kernels import NEEDS, cpu_flags
from orchestrator.core.kt_legacy.command import Command, arguments
from orchestrator.core.kt_legacy.tree import Tree

pytestmark = pytest.mark.long

FLAGS = cpu_flags(Path("/proc/cpuinfo").read_text(encoding="ascii"))
RUNNABLE = tuple(variant for variant in VARIANTS if NEEDS[variant] <= FLAGS)
TINYSEEK = Tree(layers=4, dense_layers=1, yarn=False)
# What `single-gpu` is for a model of 61 layers.
OF_MARLIN = ROOT / "tests/unit/golden/kt-legacy-single-gpu-deepseek-r1.yaml"
CONFIGURATION, NO_GPU, NO_KERNELS = 2, 3, 78
# As compose.yaml and its kt-legacy.yaml have it.
HARDENED = (
    *("--network", "none", "--read-only", "--cap-drop", "ALL", "--cap-add", "SYS_NICE"),
    *("--security-opt", "no-new-privileges:true"),
    *("--tmpfs", "/tmp", "--tmpfs", "/cache:exec,mode=1777,size=1g"),
)
PYTEST = ("_pytest", "iniconfig", "packaging", "pluggy", "py", "pygments", "pytest")


@pytest.fixture(scope="module")
def image() -> str:
    """Built where it is not here yet, which takes 20 minutes."""
    return image_of("demo-gpu")


def run(
    image: str, *command: str, entry: str = "", options: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    entrypoint = ("--entrypoint", entry) if entry else ()
    return subprocess.run(
        ["docker", "run", "--rm", "--init", *HARDENED, *entrypoint, *options, image, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def python(image: str, *command: str, options: Sequence[str] = ()) -> str:
    done = run(image, *command, entry="python3", options=options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


# --- the CPU's kernels ---


@pytest.mark.parametrize("copies", [(), ("--numa_copies",)], ids=["", "numa"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_layer_of_experts_is_computed_as_torch_does_within_3_percent(
    image: str, variant: str, copies: tuple[str, ...]
) -> None:
    done = run(image, "-m", "kt_legacy_engine.check_kernels", variant, *copies, entry="python3")
    if variant in RUNNABLE:
        assert done.returncode == 0, done.stdout + done.stderr
        name = f"{variant}-numa" if copies else variant
        found = re.fullmatch(rf"{name}, as asked for: (\d+\.\d+) % from torch\n", done.stdout)
        assert found
        # Exactly the same would mean that nothing was computed.
        assert 0 < float(found[1]) <= 3
    else:
        assert done.returncode != 0
        assert "this processor lacks" in done.stderr


# --- the start ---


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    work = tmp_path_factory.mktemp("kt-legacy")
    (work / "rules.yaml").write_text(rules(shipped(WITHOUT_MARLIN), TINYSEEK), encoding="utf-8")
    (work / "key").write_text("a-key")
    return older(ROOT / "tests/fixtures/tinyseek", "Q4_K_M", work)


def started(
    image: str,
    weights: Weights,
    *,
    variant: str = "auto",
    copies: bool = False,
    placement: Path | None = None,
) -> "subprocess.CompletedProcess[str]":
    """The engine by its own entry point, on TinySeek. `placement`: rules other than those without Marlin."""
    command = Command(
        gguf_dir="weights",
        rules_file="/placement/rules.yaml",
        threads=1,
        context_tokens=2048,
        max_tokens=128,
        chunk_tokens=256,
        cpu_variant=variant,
        numa_copies=copies,
    )
    work = weights.weights_dir.parent
    told = {
        "LOCK_FILE": "/locks/lock.json",
        "WEIGHTS_DIR": "/weights",
        "MODEL_NAME": "tiny",
        "API_KEY_FILE": "/run/secrets/engine_api_key",
        "MEMORY_POLICY": "replicate" if copies else "local",
    }
    mounts = (
        f"{weights.lock}:/locks/lock.json:ro",
        f"{weights.weights_dir}:/weights:ro",
        f"{work}/key:/run/secrets/engine_api_key:ro",
        f"{placement or work / 'rules.yaml'}:/placement/rules.yaml:ro",
    )
    options = [
        *(word for name, value in told.items() for word in ("-e", f"{name}={value}")),
        *(word for mount in mounts for word in ("-v", mount)),
    ]
    return run(image, *arguments(command), options=options)


def test_without_a_driver_the_engine_says_what_is_missing_and_what_to_do(
    image: str, weights: Weights
) -> None:
    done = started(image, weights)
    assert done.returncode == NO_GPU
    assert "error: the engine does not start: there is no GPU that it can use" in done.stderr
    assert "why: Found no NVIDIA driver on your system." in done.stderr
    assert "next: python3 -m orchestrator doctor" in done.stderr
    assert "Traceback" not in done.stderr


def test_which_cpu_kernels_were_chosen_and_why_is_the_first_that_it_says(
    image: str, weights: Weights
) -> None:
    # Each of its lines begins anew, after whatever a library left.
    first = started(image, weights).stderr.split("\n")[1]
    listed = ", ".join(VARIANTS)
    assert first == (
        f"CPU kernels: {RUNNABLE[0]}, the best of {listed} that this processor can run"
    )


def test_other_kernels_may_be_asked_for_but_none_that_would_crash(
    image: str, weights: Weights
) -> None:
    assert "CPU kernels: avx2, as asked for" in started(image, weights, variant="avx2").stderr
    copies = started(image, weights, variant="avx2", copies=True)
    assert "CPU kernels: avx2-numa, as asked for" in copies.stderr
    for variant in set(VARIANTS) - set(RUNNABLE):
        refused = started(image, weights, variant=variant)
        assert refused.returncode == NO_KERNELS
        assert "this processor lacks" in refused.stderr


def test_up_forced_on_a_host_without_a_gpu_is_refused_before_anything_is_built(
    tmp_path: Path,
) -> None:
    """No engine is started there, whose own refusal is the test above."""
    stack = Appliance(tmp_path, {"profile": "demo-gpu"})
    try:
        done = stack.run("up", "--force", "gpu-count", "--force", "vram")
    finally:
        stack.remove()
    assert done.returncode == CONFIGURATION
    assert "this host has 0" in done.stderr


# --- the GPU's kernels ---

KERNELS = """
import glob, json, torch, KTransformersOps
from pathlib import Path
(path,) = glob.glob("/opt/kt/KTransformersOps*.so")
data = Path(path).read_bytes()
found, at = [], data.find(b"\\x50\\xed\\x55\\xba")
while at >= 0:
    word = lambda place, size: int.from_bytes(data[place : place + size], "little")
    end = at + word(at + 6, 2) + word(at + 8, 8)
    place, parts = at + word(at + 6, 2), []
    while place < end:
        parts.append([{1: "PTX", 2: "sm"}[word(place, 2)], word(place + 28, 4)])
        place += word(place + 4, 4) + word(place + 8, 8)
    found.append(parts)
    at = data.find(b"\\x50\\xed\\x55\\xba", end)
functions = [name for name in dir(KTransformersOps) if not name.startswith("_")]
print(json.dumps({"functions": functions, "fat": found}))
"""


def test_the_gpus_kernels_are_there_for_every_generation_from_ampere_and_for_later_ones(
    image: str,
) -> None:
    """The driver takes the code for its card, or compiles PTX: both lie in the library's fat binaries."""
    found = json.loads(python(image, "-c", KERNELS))
    assert {"gptq_marlin_gemm", "dequantize_q4_k", "dequantize_q6_k"} <= {*found["functions"]}
    # Of dequant.cu and of gptq_marlin.cu.
    assert len(found["fat"]) == 2
    for parts in found["fat"]:
        assert {number for kind, number in parts if kind == "sm"} == {80, 86, 89, 90, 120}
        assert [number for kind, number in parts if kind == "PTX"] == [80]


def test_the_image_knows_how_it_was_built(image: str) -> None:
    command = ["docker", "image", "inspect", "--format", "{{json .Config}}", image]
    config = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert "MARLIN=1" in config["Env"]
    assert config["User"] == "10001:10001"


# What torch.compile's Triton does first: a launcher in C, with a driver's library beside it.
TRITON = """
import pathlib, subprocess, tempfile
import triton.backends.nvidia.driver as driver
from triton.runtime import build
folder = tempfile.mkdtemp(dir="/cache")
subprocess.run(["gcc", "-shared", "-o", folder + "/libcuda.so.1", "-x", "c", "/dev/null"], check=True)
here = pathlib.Path(driver.__file__).parent
print(build._build("cuda_utils", str(here / "driver.c"), folder, [folder], [str(here / "include")],
                   ["libcuda.so.1"], []))
"""


def test_what_is_compiled_at_run_time_compiles_in_the_cache_of_a_read_only_container(
    image: str,
) -> None:
    assert python(image, "-c", TRITON).strip().startswith("/cache/")


# --- the fast build ---


@pytest.fixture(scope="module")
def without_marlin(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """All stages but the GPU's kernels are those of `image`."""
    with built("kt-legacy", {"MARLIN": "0"}, tmp_path_factory.mktemp("without-marlin")) as ref:
        yield ref


def test_the_build_without_marlin_says_so_at_its_start(
    without_marlin: str, weights: Weights
) -> None:
    said = [line for line in started(without_marlin, weights).stderr.splitlines() if line]
    kernels, gpu = said[:2]
    assert kernels.startswith("CPU kernels: ")
    assert gpu == "built without Marlin: for checks only, it needs more VRAM and is slower"


def test_the_build_without_marlin_has_the_other_kernels_for_the_same_cards(
    without_marlin: str,
) -> None:
    found = json.loads(python(without_marlin, "-c", KERNELS))
    assert "gptq_marlin_gemm" not in found["functions"]
    assert {"dequantize_q4_k", "dequantize_q6_k"} <= {*found["functions"]}
    (parts,) = found["fat"]
    assert {number for kind, number in parts if kind == "sm"} == {80, 86, 89, 90, 120}
    assert [number for kind, number in parts if kind == "PTX"] == [80]


def test_the_build_without_marlin_refuses_a_placement_that_needs_it(
    without_marlin: str, weights: Weights
) -> None:
    done = started(without_marlin, weights, placement=OF_MARLIN)
    assert done.returncode == CONFIGURATION
    assert "the placement asks for kernels that this image was built without" in done.stderr
    assert "Traceback" not in done.stderr


# --- what the image is not ---


def test_upstreams_server_can_not_even_be_started(image: str) -> None:
    done = run(image, "-m", "ktransformers.server.main", "--help", entry="python3")
    assert done.returncode == 1
    assert "No module named 'fastapi'" in done.stderr


def test_nothing_is_written_but_to_the_cache(image: str) -> None:
    """A container that could write has, after a start, no file more or less."""
    command = ["docker", "create", "--network", "none", "--tmpfs", "/cache:exec,mode=1777"]
    command += ["--entrypoint", "python3", image, "-m", "kt_legacy_engine.check_kernels"]
    name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    try:
        subprocess.run(["docker", "start", "--attach", name], capture_output=True, check=True)
        changed = subprocess.run(
            ["docker", "diff", name], capture_output=True, text=True, check=True
        )
        assert changed.stdout.split() in ([], ["C", "/cache"], ["A", "/cache"])
    finally:
        subprocess.run(["docker", "rm", "-f", name], capture_output=True, check=True)


def test_the_engines_own_tests_pass_in_the_image_with_its_torch(image: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    (told / "site").mkdir(parents=True)
    for name in PYTEST:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin)
        if spec.submodule_search_locations is None:
            shutil.copy(source, told / "site")
        else:
            shutil.copytree(source.parent, told / "site" / name)
    (told / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    options = [
        *("-v", f"{ROOT}:/project:ro", "-v", f"{told}:/told:ro", "-w", "/tmp"),
        *("-e", "PYTHONPATH=/opt/kt:/project/images/inference/kt-legacy/tests:/told/site"),
    ]
    tests = "/project/images/inference/kt-legacy/tests"
    said = python(
        image,
        *("-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-c", "/told/pytest.ini"),
        *(f"{tests}/{name}.py" for name in ("test_kv_b", "test_mla", "test_tokenizing")),
        options=options,
    )
    assert re.search(r"\d+ passed", said)
    assert "skipped" not in said

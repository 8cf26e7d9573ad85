"""The image of kt-sglang as `up` would build it, on a machine without a card: 5 GB where it is not here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hosts
from engine_folder import prove
from fitting import a_profile, settings_of
from kt_sglang_engine.server import KEPT
from orchestrator.adapters.lookout import EngineLookout
from orchestrator.core.placement import place
from orchestrator.place import settings_without_profile
from orchestrator.prepare import every_build

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]
PROFILE = "qwen3-30b-a3b-bf16"
# As compose.yaml and configs/compose/kt-sglang.yaml have it, under a uid that the image does not know.
HARDENED = (
    *("docker", "run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges:true", "--user", "12345:12345", "--tmpfs", "/tmp"),
    *("--tmpfs", "/cache:exec,mode=1777,size=4g"),
)


@pytest.fixture(scope="module")
def image() -> str:
    """Its reference, once `make images-gpu` made it."""
    subprocess.run(
        [sys.executable, "-m", "orchestrator.building", PROFILE],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "images/wire/src"},
        check=True,
    )
    _, settings, found = settings_without_profile(ROOT, {})
    builds = every_build(settings, found, EngineLookout(settings.project), (0, 0))
    return next(build.ref for build in builds if build.recipe.name == "inference-kt-sglang")


def python(image: str, *words: str, options: tuple[str, ...] = ()) -> str:
    """What python3 says in a container of it."""
    done = subprocess.run(
        [*HARDENED, *options, "--entrypoint", "python3", image, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_sglangs_own_help_names_every_flag_that_is_planned(image: str) -> None:
    text = python(image, "-m", "sglang.launch_server", "--help", options=("--env", "HOME=/cache"))
    for name in (PROFILE, "deepseek-r1-amxint4", "deepseek-r1-distill-7b-gpu"):
        profile = a_profile(name)
        arguments = place(profile, settings_of(profile), hosts.h200(), None).arguments
        for flag in (word for word in arguments if word.startswith("--")):
            assert f"{flag} " in text.replace("\n", " ").replace(",", " "), flag


def test_without_a_driver_the_launcher_says_so_in_three_lines_and_ends_with_3(
    image: str, tmp_path: Path
) -> None:
    prove(tmp_path, {"config.json": b""})
    (tmp_path / "key").write_text("sk-1234")
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o755)
    told = {
        "LOCK_FILE": "/job/lock.json",
        "WEIGHTS_DIR": "/job/weights",
        "API_KEY_FILE": "/job/key",
    }
    variables = (word for name, value in told.items() for word in ("--env", f"{name}={value}"))
    mount = ("--mount", f"type=bind,source={tmp_path},target=/job,readonly")
    done = subprocess.run(
        [*HARDENED, *mount, *variables, image, "--model", "."],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.strip().splitlines() == [
        "error: the engine does not start: there is no GPU that it can use",
        "why: there is no NVIDIA driver in the container (libcuda.so.1)",
        "next: python3 -m orchestrator doctor (it says what the driver lacks)",
    ]


def test_the_kernels_that_the_wheels_hold_in_fifths_lie_where_upstream_looks_first(
    image: str,
) -> None:
    text = python(
        image,
        "-c",
        "import importlib.util, pathlib\n"
        "package = pathlib.Path(importlib.util.find_spec('sgl_kernel').origin).parent\n"
        "for name in ('sm100/common_ops.abi3.so', 'sm90/common_ops.abi3.so', 'flash_ops.abi3.so'):\n"
        "    print(name, (package / name).stat().st_size > 10**8)\n"
        "print(len(list(package.parent.glob('*/payload.part'))))\n",
    )
    assert text.splitlines() == [
        "sm100/common_ops.abi3.so True",
        "sm90/common_ops.abi3.so True",
        "flash_ops.abi3.so True",
        "0",
    ]


# Every model's first token needs this one. Compiled as sglang does it, but for a named card.
COMPILE = """
import torch
from sglang.jit_kernel import kvcache, norm, rope, utils
for module in (kvcache, norm, rope):
    module.is_arch_support_pdl = lambda: PDL
rope._jit_fused_rope_module(True, 128, torch.bfloat16)
kvcache._jit_kvcache_module(1024)
norm._jit_qknorm_module(128, torch.bfloat16)
print("compiled")
"""


@pytest.mark.parametrize(("architecture", "pdl"), [("8.0", False), ("12.0", True)])
def test_sglangs_kernels_compile_with_the_compiler_in_the_image(
    image: str, architecture: str, pdl: bool
) -> None:
    options = ("--env", "HOME=/cache", "--env", f"TVM_FFI_CUDA_ARCH_LIST={architecture}")
    text = python(image, "-c", COMPILE.replace("PDL", str(pdl)), options=options)
    assert text.splitlines()[-1] == "compiled"


# Not loaded: its libraries name the driver's, which is not here.
COMPILE_FLASHINFER = """
import torch
from flashinfer.jit.attention import gen_batch_decode_module
from flashinfer.norm import gen_norm_module
bf16 = torch.bfloat16
gen_norm_module().build(verbose=False)
gen_batch_decode_module(
    bf16, bf16, bf16, torch.int32, 128, 128, 0, False, False
).build(verbose=False)
print("compiled")
"""


def test_flashinfers_kernels_compile_with_the_compiler_in_the_image(image: str) -> None:
    options = (
        *("--env", "HOME=/cache", "--env", "FLASHINFER_WORKSPACE_BASE=/cache/flashinfer"),
        *("--env", "FLASHINFER_CUDA_ARCH_LIST=8.9"),
    )
    text = python(image, "-c", COMPILE_FLASHINFER, options=options)
    assert text.splitlines()[-1] == "compiled"


def test_the_doors_that_are_kept_are_sglangs_and_those_that_are_shut_are_real(image: str) -> None:
    # Its module can't be imported without a driver, so its source is read.
    path = "/opt/app/lib/python3.11/site-packages/sglang/srt/entrypoints/http_server.py"
    source = python(image, "-c", f"print(open({path!r}).read())")
    doors = set(re.findall(r'@app\.\w+\(\s*"([^"]+)"', source))
    assert doors >= KEPT
    assert {"/server_info", "/update_weights_from_disk", "/set_internal_state"} <= doors - KEPT

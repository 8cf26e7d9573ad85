"""The image of llama.cpp for cards, on a machine without one. Built where it is not here: an hour."""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from e2e.engine_builds import image_of
from e2e.scenario import ROOT
from gpu.forms import older
from gpu.kt_legacy import REPLIES
from gpu.proven import Weights
from llamacpp_engine.server import NO_GPU, arguments
from llamacpp_engine.settings import read_settings
from orchestrator.core.terms import LLAMACPP_CUDA_IMAGE

pytestmark = pytest.mark.long
ARCHITECTURE = "90"
PROGRAM = "/opt/llama/llama-server"
# As compose.yaml and its nvidia.yaml have it; the user is the image's own.
HARDENED = (
    *("docker", "run", "--rm", "--init", "--network", "none", "--read-only", "--cap-drop", "ALL"),
    *("--cap-add", "SYS_NICE", "--security-opt", "no-new-privileges:true", "--tmpfs", "/tmp"),
)


@pytest.fixture(scope="module")
def image() -> str:
    return image_of("deepseek-r1-ud-iq1s", ARCHITECTURE)


def run(
    image: str, *command: str, entry: str = "", options: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    entrypoint = ("--entrypoint", entry) if entry else ()
    return subprocess.run(
        [*HARDENED, *entrypoint, *options, image, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    work = tmp_path_factory.mktemp("llamacpp")
    (work / "key").write_text("a-key")
    made = older(ROOT / "tests/fixtures/tinyseek", "Q4_K_M", work)
    # The user in the container is none of this machine.
    for path in (work.parent, work, *work.rglob("*")):
        path.chmod(0o755)
    return made


def told(weights: Weights) -> Mapping[str, str]:
    return {
        "LLAMA_SERVER": PROGRAM,
        "LOCK_FILE": "/locks/lock.json",
        "WEIGHTS_DIR": "/weights",
        "MODEL_FILE": "weights/TinySeek-Q4_K_M-00001-of-00003.gguf",
        "MODEL_NAME": "tiny",
        "API_KEY_FILE": "/run/secrets/engine_api_key",
        "CONTEXT_TOKENS": "2048",
        "SLOTS": "1",
        "MAX_TOKENS": "128",
        "THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "0",
    }


def mounts(weights: Weights) -> tuple[str, ...]:
    found = (
        f"{weights.lock}:/locks/lock.json:ro",
        f"{weights.weights_dir}:/weights:ro",
        f"{weights.lock.parents[1] / 'key'}:/run/secrets/engine_api_key:ro",
    )
    return tuple(word for mount in found for word in ("--volume", mount))


def test_the_program_says_its_version_as_a_user_who_may_write_nothing(image: str) -> None:
    done = run(image, "--version", entry=PROGRAM)
    assert done.returncode == 0, done.stderr
    assert "version:" in done.stdout + done.stderr
    who = run(image, "-c", "import os; print(os.getuid())", entry="python3")
    assert who.stdout == "10001\n"


def test_without_a_driver_the_launcher_says_so_and_ends_with_3(
    image: str, weights: Weights
) -> None:
    variables = (word for pair in told(weights).items() for word in ("--env", "=".join(pair)))
    done = run(image, options=(*mounts(weights), *variables))
    assert done.returncode == NO_GPU
    what, why, *more, next_step = done.stderr.strip().splitlines()
    assert what == "error: the engine does not start: there is no GPU that it can use"
    assert why == "why: it is to use 1 and sees 0"
    assert next_step.startswith("next: python3 -m orchestrator doctor")
    assert more


def test_every_flag_that_is_rendered_is_the_programs_own(image: str, weights: Weights) -> None:
    rendered = arguments(read_settings(told(weights)), Path("/model"), "a template")
    helped = run(image, "--help", entry=PROGRAM).stdout
    for flag in (word for word in rendered if word.startswith("--")):
        assert re.search(rf"(?<![\w-]){flag}(?![\w-])", helped), flag


# Starts the program without any card, asks it once, and prints what it said of itself and answered.
ASK = """
import json, subprocess, sys, time, urllib.request
program, question, *flags = sys.argv[1:]
log = open("/tmp/log", "w+", errors="replace")
engine = subprocess.Popen([program, "--port", "8000", "--device", "none", *flags], stdout=log, stderr=log)
def asked(path, body=None):
    request = urllib.request.Request("http://127.0.0.1:8000" + path, body, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))
until = time.monotonic() + 120
while time.monotonic() < until and engine.poll() is None:
    try:
        asked("/health")
        break
    except OSError:
        time.sleep(0.1)
body = {"messages": [{"role": "user", "content": question}], "temperature": 0}
reply = asked("/v1/chat/completions", json.dumps(body).encode())
engine.terminate()
engine.wait()
log.seek(0)
print(json.dumps([reply["choices"][0]["message"]["content"], log.read()]))
"""


def test_its_program_answers_with_the_cpus_code_that_suits_this_processor(
    image: str, weights: Weights
) -> None:
    question, wanted = next(iter(REPLIES.items()))
    folder = next(weights.weights_dir.rglob("*00001-of-00003.gguf")).relative_to(
        weights.weights_dir
    )
    flags = ("--model", f"/weights/{folder}", "--ctx-size", "2048", "--verbosity", "4")
    done = run(
        image, "-c", ASK, PROGRAM, question, *flags, entry="python3", options=mounts(weights)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer, log = json.loads(done.stdout)
    assert answer == wanted
    (variant,) = re.findall(r"loaded CPU backend from /opt/llama/libggml-cpu-(\w+)\.so", log)
    avx512 = "avx512f" in Path("/proc/cpuinfo").read_text(encoding="ascii")
    assert (variant in {"haswell", "alderlake"}) != avx512


def test_it_holds_code_for_the_card_that_was_named_and_is_no_larger_than_is_planned(
    image: str,
) -> None:
    read = "import re, pathlib; data = pathlib.Path('/opt/llama/libggml-cuda.so').read_bytes(); "
    read += "print(sorted({found.decode() for found in re.findall(rb'sm_[0-9]+', data)}))"
    done = run(image, "-c", read, entry="python3")
    assert done.stdout == f"['sm_{ARCHITECTURE}']\n", done.stderr
    inspected = subprocess.run(
        ["docker", "image", "inspect", "--format", "{{.Size}}", image],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 0.9 < int(inspected.stdout) / LLAMACPP_CUDA_IMAGE <= 1.0

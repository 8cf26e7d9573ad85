"""The whole program `python3 -m kt_sglang_engine`, with stand-ins for sglang and for the driver."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine_folder import environment, prove, weights_in

HERE = Path(__file__).parent
KEY = "sk-of-the-engine"
PATIENCE_S = 30
PROGRAM = """
import json, os, sys
from kt_sglang_engine.__main__ import main
class Driver:
    # CUDA's version, how many cards, and their compute capability.
    cuda, cards, capability = json.loads(sys.argv[1]) or (0, 0, (0, 0))
    def cuInit(self, flags):
        return 0 if self.cards else 100
    def cuDriverGetVersion(self, version):
        version._obj.value = self.cuda
        return 0
    def cuDeviceGetCount(self, count):
        count._obj.value = self.cards
        return 0
    def cuDeviceGetAttribute(self, value, attribute, device):
        value._obj.value = self.capability[attribute - 75]
        return 0
driver = None if sys.argv[1] == "null" else Driver()
"""
FILES = {"config.json": b"{}", "model-00001-of-00001.safetensors": b"weights"}


@dataclass
class Container:
    """What compose.yaml gives the container, in a folder."""

    folder: Path
    environment: dict[str, str]
    driver: Any = (13000, 1, (8, 9))

    @property
    def weights(self) -> Path:
        return weights_in(self.folder)

    @property
    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "told.json").read_text())
        return found

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "state.json").read_text())
        return found

    def start(self, behaviour: str, *arguments: str) -> "subprocess.Popen[str]":
        server = (sys.executable, str(HERE / "fake_server.py"), behaviour)
        words = (*server, str(self.folder / "told.json"))
        program = f"{PROGRAM}sys.exit(main(os.environ, sys.argv[2:], driver, {words!r}))"
        told = arguments or ("--model", ".", "--kt-weight-path", "experts")
        return subprocess.Popen(
            [sys.executable, "-c", program, json.dumps(self.driver), *told],
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, behaviour: str = "ends", *arguments: str) -> tuple[int, str]:
        """To its end, for those that end by themselves."""
        with self.start(behaviour, *arguments) as process:
            _, words = process.communicate(timeout=PATIENCE_S)
        return process.returncode, words

    def health(self) -> tuple[int, dict[str, Any]]:
        code, words = self.health_words()
        found: dict[str, Any] = json.loads(words)
        return code, found

    def health_words(self) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "kt_sglang_engine.health"],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


@pytest.fixture
def container(tmp_path: Path) -> Container:
    prove(tmp_path, FILES)
    (tmp_path / "cache").mkdir()
    own = {"CACHE_DIR": str(tmp_path / "cache"), "STATE_FILE": str(tmp_path / "state.json")}
    return Container(tmp_path, environment(tmp_path, KEY, "kt-sglang") | own)


@contextlib.contextmanager
def started(container: Container, behaviour: str, words: str) -> Iterator["subprocess.Popen[str]"]:
    """Running, and past the point where it said `words`."""
    with container.start(behaviour) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if words in line:
                    break
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


# --- what the engine is told ---


def test_folders_are_those_of_the_proven_weights_and_the_key_is_nowhere(
    container: Container,
) -> None:
    with started(container, "serves", "serving") as process:
        told = container.told
        command = Path(f"/proc/{process.pid}/cmdline").read_text()
    folder = str(container.weights)
    assert told["arguments"] == ["--model", folder, "--kt-weight-path", f"{folder}/experts"]
    assert KEY not in command + json.dumps(told)


def test_all_that_it_writes_goes_into_the_cache_and_a_health_check_is_no_request(
    container: Container,
) -> None:
    with started(container, "serves", "serving"):
        environment = container.told["environment"]
    cache = container.environment["CACHE_DIR"]
    folders = {name for name, value in environment.items() if value.startswith(f"{cache}/")}
    assert {
        "HOME",
        "TRITON_CACHE_DIR",
        "FLASHINFER_WORKSPACE_BASE",
        "TVM_FFI_CACHE_DIR",
        "TORCH_EXTENSIONS_DIR",
        "XDG_CACHE_HOME",
    } <= folders
    assert environment["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "0"
    assert environment["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize("flag", ["--api-key", "--admin-api-key"])
def test_a_key_on_the_command_line_is_refused_and_not_repeated(
    container: Container, flag: str
) -> None:
    for arguments in ((flag, "sk-1234"), (f"{flag}=sk-1234",)):
        code, words = container.run("serves", "--model", ".", *arguments)
        assert code == 2
        assert f"why: {flag} would show the key" in words
        assert "sk-1234" not in words


# --- refusals, before anything of the engine runs ---


def test_weights_that_are_not_proven_are_refused(container: Container) -> None:
    os.utime(container.weights / "config.json", ns=(0, 0))
    code, words = container.run()
    assert code == 6
    assert "why: config.json: the file was changed after it was proven" in words
    assert "next: python3 -m orchestrator up" in words
    assert not (container.folder / "told.json").exists()


@pytest.mark.parametrize(
    ("driver", "why", "next_step"),
    [
        (None, "there is no NVIDIA driver in the container (libcuda.so.1)", "doctor"),
        ((12080, 1, (8, 9)), "the driver knows CUDA 12.8, and the engine needs 13.0", "580"),
        ((13000, 0, (0, 0)), "the driver sees no GPU (CUDA's error 100)", "doctor"),
        (
            (13000, 1, (7, 5)),
            "GPU 0 has compute capability 7.5, and the engine needs 8.0",
            "Ampere",
        ),
    ],
)
def test_a_host_without_a_gpu_that_it_can_use_is_told_why(
    container: Container, driver: Any, why: str, next_step: str
) -> None:
    container.driver = driver
    code, words = container.run()
    lines = words.strip().splitlines()
    assert code == 3
    assert lines[0] == "error: the engine does not start: there is no GPU that it can use"
    assert lines[1] == f"why: {why}"
    assert lines[2].startswith("next: ")
    assert next_step in lines[2]
    assert not (container.folder / "told.json").exists()


def test_more_cards_on_the_command_line_than_there_are_is_refused(container: Container) -> None:
    code, words = container.run("serves", "--model", ".", "--tensor-parallel-size", "2")
    assert code == 3
    assert "why: the command line uses 2 GPUs, and 1 can be seen" in words


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("API_KEY_FILE", "/nowhere/key", "the API key file /nowhere/key can't be used"),
        ("LOCK_FILE", "/nowhere/lock.json", "can't read the lock /nowhere/lock.json"),
        ("CACHE_DIR", "/nowhere/cache", "it is missing or can't be written"),
        ("WEIGHTS_DIR", "", "WEIGHTS_DIR: Field required"),
        ("MEMORY_POLICY", "replicate", "its pools share one copy of the experts"),
        ("MEMORY_POLICY", "interleave", "MEMORY_POLICY interleave with MEMORY_NODES empty"),
        ("MEMORY_POLICY", "scatter", "MEMORY_POLICY: Input should be 'local', 'one node'"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_the_reason(
    container: Container, name: str, value: str, reason: str
) -> None:
    container.environment[name] = value
    code, words = container.run()
    assert code == 2
    assert reason in words
    assert "next: " in words
    assert not (container.folder / "told.json").exists()


def test_an_empty_key_file_stops_it_because_the_engine_would_serve_anyone(
    container: Container,
) -> None:
    (container.folder / "key").write_text("\n")
    code, words = container.run()
    assert code == 2
    assert "it is empty" in words


def test_a_command_line_without_a_model_is_refused(container: Container) -> None:
    code, words = container.run("serves", "--host", "0.0.0.0")  # noqa: S104
    assert code == 2
    assert "why: --model is not given" in words


# --- how far it is ---


def test_while_it_loads_health_says_how_far_it_is(container: Container) -> None:
    with started(container, "loads", "0/4"):
        eventually(lambda: container.health()[1]["loaded_bytes"] > 0)
        code, found = container.health()
    total = sum(map(len, FILES.values()))
    assert code == 1
    assert (found["status"], found["loaded_bytes"]) == ("loading", total // 4)
    assert found["total_bytes"] == total
    assert found["eta_s"] >= 0


def test_what_it_does_after_the_load_is_said_and_ready_stays_ready(container: Container) -> None:
    # Its last line but one is of a stage before.
    with started(container, "serves", "serving"):
        eventually(lambda: container.state["status"] == "ok")
    assert container.state["status"] == "ok"


@pytest.mark.parametrize(("status", "code"), [("200 OK", 0), ("503 Service Unavailable", 1)])
def test_health_is_the_engines_own_answer(container: Container, status: str, code: int) -> None:
    (container.folder / "state.json").write_text('{"status": "warming up"}')
    port = int(container.environment["LISTEN_PORT"])
    with socket.create_server(("127.0.0.1", port)) as listener:
        process = subprocess.Popen(
            [sys.executable, "-m", "kt_sglang_engine.health"],
            env=container.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        connection, _ = listener.accept()
        with connection:
            request = connection.recv(1000)
            connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
            said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert request.startswith(b"GET /health ")
    assert json.loads(said)["status"] == ("ok" if code == 0 else "warming up")


def test_a_bar_of_progress_and_warnings_arrive_as_the_engine_writes_them(
    container: Container,
) -> None:
    with container.start("serves") as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "serving" in line:
                break
        process.terminate()
        rest, _ = process.stderr.read(), process.wait(timeout=PATIENCE_S)
    words = "".join(lines) + rest
    assert "25% Completed | 1/4" in words
    # Upstream says it for every thread; what it means is said once.
    assert words.count("set_mempolicy: Operation not permitted") == 2
    assert words.count("warning: the container lacks SYS_NICE") == 1


def test_where_the_progress_cannot_be_written_the_engine_serves_all_the_same(
    container: Container,
) -> None:
    container.environment["STATE_FILE"] = "/nowhere/state.json"
    with started(container, "serves", "serving") as process:
        code, words = container.health_words()
        assert process.poll() is None
    assert code == 1
    assert words.startswith("/health: ")


# --- ends ---


@pytest.mark.parametrize(("behaviour", "words"), [("serves", "serving"), ("loads", "0/4")])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_ends_with_0_and_leaves_no_process(
    container: Container, behaviour: str, words: str, number: signal.Signals
) -> None:
    with started(container, behaviour, words) as process:
        process.send_signal(number)
        assert process.wait(timeout=PATIENCE_S) == 0
    eventually(lambda: is_gone(container.told["child"]))


@pytest.mark.parametrize(
    ("behaviour", "code", "what", "next_step"),
    [
        ("no-memory", 2, "the memory of the GPU is full", "ORCH_GPU_EXPERTS"),
        ("no-room", 2, "the weights leave no room on the GPU", "mem_fraction_static"),
        ("no-fp8", 3, "this GPU can't compute in FP8", "recommend"),
        ("no-compiler", 2, "a kernel could not be compiled", "/cache"),
        ("no-shard", 2, "a tensor is missing", "verify --full"),
        ("watchdog", 1, "a batch took longer than --watchdog-timeout", "chunked_prefill_size"),
        ("late", 1, "the memory of the GPU is full", "ORCH_GPU_EXPERTS"),
        ("ends", 1, "the engine ended by itself with exit code 1", "orchestrator up"),
        ("gives-up-early", 1, "a process of the engine failed", "orchestrator up"),
        ("gives-up", 1, "a process of the engine failed", "orchestrator up"),
        ("no-warm-up", 1, "a process of the engine failed", "orchestrator up"),
        ("crashes", 128 + signal.SIGSEGV, "the engine was ended by SIGSEGV", "orchestrator up"),
        ("killed", 128 + signal.SIGKILL, "the kernel ended the engine", "orchestrator up"),
    ],
)
def test_an_engine_that_ends_by_itself_is_told_with_cause_and_next_step(
    container: Container, behaviour: str, code: int, what: str, next_step: str
) -> None:
    found, words = container.run(behaviour)
    verdict = [
        line for line in words.splitlines() if line.startswith(("error: ", "why: ", "next: "))
    ]
    assert found == code
    assert verdict[0].startswith(f"error: {what}")
    assert verdict[1].startswith("why: ")
    assert next_step in verdict[2]
    eventually(lambda: is_gone(container.told["child"]))


def test_the_cause_is_the_first_that_was_said_and_quoted(container: Container) -> None:
    _, words = container.run("no-memory")
    assert "why: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB." in words

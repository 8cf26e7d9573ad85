"""The whole program `python3 -m llamacpp_engine`, with a stand-in for the engine's wheel."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from wire import Lock, LockedFile, ProvenFile, Receipt

HERE = Path(__file__).parent
IMAGES = HERE.parents[2]
SHARDS = ("Q4/model-00001-of-00002.gguf", "Q4/model-00002-of-00002.gguf")
KEY = "sk-of-the-engine"
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def a_gguf(values: dict[str, str]) -> bytes:
    """A header without tensors, as the format's description says. 8: a value is text."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(values))
    for key, value in values.items():
        head += struct.pack("<Q", len(key)) + key.encode()
        head += struct.pack("<IQ", 8, len(value)) + value.encode()
    return head


FIRST_SHARDS = {
    "with a template": a_gguf({"tokenizer.chat_template": TEMPLATE}),
    "without one": a_gguf({"general.architecture": "llama"}),
    "no GGUF": b"shard 0",
}


@dataclass
class Container:
    """What compose.yaml gives the container, in a folder."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def weights(self) -> Path:
        (receipt,) = (self.folder / "weights").glob("*/*/")
        return receipt

    @property
    def parameters(self) -> Path:
        return self.folder / "parameters.json"

    @property
    def port(self) -> int:
        return int(self.environment["LISTEN_PORT"])

    def start(self, engine: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "llamacpp_engine"],
            env={**self.environment, "FAKE_ENGINE": engine},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, engine: str = "serves") -> tuple[int, str]:
        """To its end, for those that end by themselves."""
        with self.start(engine) as process:
            try:
                _, words = process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.terminate()
                raise
        return process.returncode, words


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return a_container(tmp_path, "with a template")


def a_container(tmp_path: Path, first_shard: str) -> Container:
    files = []
    lock_files = []
    for path, content in zip(SHARDS, (FIRST_SHARDS[first_shard], b"shard 1"), strict=True):
        lock_files.append(
            LockedFile(
                path=path, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest()
            )
        )
        files.append((path, content))
    lock = Lock(repo="owner/name", revision="0123456789" * 4, files=tuple(lock_files))
    (tmp_path / "lock.json").write_text(lock.model_dump_json())
    (tmp_path / "key").write_text(f"{KEY}\n")
    folder = tmp_path / "weights" / lock.folder
    proven = []
    for (path, content), locked in zip(files, lock.files, strict=True):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        found = target.stat()
        proven.append(
            ProvenFile(
                path=path,
                size_bytes=found.st_size,
                sha256=locked.sha256,
                mtime_ns=found.st_mtime_ns,
                inode=found.st_ino,
            )
        )
    receipt = Receipt(repo=lock.repo, revision=lock.revision, files=tuple(proven))
    (folder / "receipt.json").write_text(receipt.model_dump_json())
    sources = (
        HERE / "fake_engine",
        IMAGES / "wire/src",
        IMAGES / "inference/placing/src",
        IMAGES / "inference/llamacpp/src",
    )
    return Container(
        tmp_path,
        {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(str(source) for source in sources),
            "FAKE_ENGINE_PARAMS": str(tmp_path / "parameters.json"),
            "LOCK_FILE": str(tmp_path / "lock.json"),
            "WEIGHTS_DIR": str(tmp_path / "weights"),
            "MODEL_FILE": SHARDS[0],
            "MODEL_NAME": "a-model",
            "API_KEY_FILE": str(tmp_path / "key"),
            "CONTEXT_TOKENS": "4096",
            "SLOTS": "3",
            "MAX_TOKENS": "777",
            "THREADS": "5",
            "LISTEN_PORT": str(a_free_port()),
        },
    )


def a_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def started(
    container: Container, engine: str, first_words: str
) -> Iterator["subprocess.Popen[str]"]:
    """Running, and past the point where it said `first_words`."""
    process = container.start(engine)
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith(first_words):
                break
        try:
            yield process
        finally:
            # Not kill(): the engine is a process of its own, which only the program itself ends.
            process.terminate()
            process.communicate(timeout=30)


# --- the receipt is checked before anything of the engine runs ---


def test_without_a_receipt_it_refuses_with_the_reason_and_the_next_step(
    container: Container,
) -> None:
    (container.weights / "receipt.json").unlink()
    code, words = container.run()
    assert code == 6
    assert words.splitlines() == [
        f"error: the engine does not start: the weights in {container.weights} are not proven",
        "why: there is no readable receipt",
        "next: python3 -m orchestrator up (it verifies the weights and writes the receipt)",
    ]
    assert not container.parameters.exists()


def test_every_shard_that_is_not_as_proven_is_named(container: Container) -> None:
    (container.weights / SHARDS[0]).unlink()
    os.utime(container.weights / SHARDS[1], ns=(0, 0))
    code, words = container.run()
    assert code == 6
    assert f"why: {SHARDS[0]}: the file is missing" in words
    assert f"why: {SHARDS[1]}: the file was changed after it was proven" in words
    assert not container.parameters.exists()


# --- configuration ---


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("MODEL_FILE", "Q4/other.gguf", "MODEL_FILE Q4/other.gguf is not one of the lock's files"),
        ("MODEL_NAME", "", "MODEL_NAME: Field required"),
        ("SLOTS", "0", "SLOTS: Input should be greater than 0"),
        ("CONTEXT_TOKENS", "many", "CONTEXT_TOKENS: Input should be a valid integer"),
        ("API_KEY_FILE", "/nowhere/key", "the API key file /nowhere/key can't be used"),
        ("SYSTEM_MESSAGE", "ring \a bell", "SYSTEM_MESSAGE: Value error, it may hold printable"),
        ("LOCK_FILE", "/nowhere/lock.json", "can't read the lock /nowhere/lock.json"),
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
    assert not container.parameters.exists()


def test_an_empty_key_file_stops_it_because_the_engine_would_serve_anyone(
    container: Container,
) -> None:
    (container.folder / "key").write_text("\n")
    code, words = container.run()
    assert code == 2
    assert "it is empty" in words


def test_a_lock_that_is_not_one_is_named(container: Container) -> None:
    (container.folder / "lock.json").write_text("{}")
    code, words = container.run()
    assert code == 2
    assert "lock.json is not a lock" in words


# --- what the engine is told ---


def test_the_engine_gets_the_first_shard_the_alias_the_key_and_a_context_for_each_slot(
    container: Container,
) -> None:
    with started(container, "serves", "serving"):
        told = json.loads(container.parameters.read_text())
    assert told["model"]["path"] == str(container.weights / SHARDS[0])
    assert told["model_alias"] == ["a-model"]
    assert told["api_keys"] == [KEY]
    assert told["hostnames"] == ["0.0.0.0"]  # noqa: S104 - what it must be
    assert (told["n_parallel"], told["n_ctx"]) == (3, 3 * 4096)
    assert told["n_predict"] == 777
    assert told["cpuparams"]["n_threads"] == told["cpuparams_batch"]["n_threads"] == 5


def test_no_number_of_threads_means_the_cpus_it_may_use(container: Container) -> None:
    container.environment["THREADS"] = "0"
    with started(container, "serves", "serving"):
        told = json.loads(container.parameters.read_text())
    assert told["cpuparams"]["n_threads"] == len(os.sched_getaffinity(0))


def test_the_engine_keeps_to_its_memory_and_its_stream_holds_nothing_but_events(
    container: Container,
) -> None:
    with started(container, "serves", "serving"):
        told = json.loads(container.parameters.read_text())
    assert told["fit_params"] is False
    assert told["cache_ram_mib"] == 0
    assert told["sse_ping_interval"] == -1


def test_without_a_system_message_the_engine_uses_the_models_own_template(
    container: Container,
) -> None:
    container.environment["SYSTEM_MESSAGE"] = ""
    with started(container, "serves", "serving"):
        told = json.loads(container.parameters.read_text())
    assert "chat_template" not in told


def test_a_system_message_goes_in_front_where_a_request_has_none(container: Container) -> None:
    container.environment["SYSTEM_MESSAGE"] = 'Say "ok" \\ or\nnothing %} 你好'
    with started(container, "serves", "serving"):
        told = json.loads(container.parameters.read_text())
    prelude, _, own = told["chat_template"].rpartition("{%- endif -%}\n")
    assert own == TEMPLATE
    as_jinja = r'''"Say \"ok\" \\ or\nnothing %} 你好"'''
    assert f"[{{'role': 'system', 'content': {as_jinja}}}] + messages" in prelude


@pytest.mark.parametrize(
    ("first_shard", "why"),
    [
        ("without one", "it holds no chat template"),
        ("no GGUF", "it starts with b'shar', not with GGUF"),
    ],
)
def test_a_system_message_that_has_no_place_to_go_is_refused(
    tmp_path: Path, first_shard: str, why: str
) -> None:
    container = a_container(tmp_path, first_shard)
    container.environment["SYSTEM_MESSAGE"] = "Answer briefly."
    code, words = container.run()
    assert code == 2
    assert why in words
    assert "next: take the system message out of the profile" in words
    assert not container.parameters.exists()


# --- where its memory goes ---


@pytest.mark.skipif(
    not Path("/proc/self/numa_maps").exists(), reason="this kernel has no memory policies"
)
def test_the_engines_own_process_runs_under_the_memory_policy(container: Container) -> None:
    container.environment |= {"MEMORY_POLICY": "interleave", "MEMORY_NODES": "0"}
    with started(container, "serves", "serving") as process:
        engine = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        lines = Path(f"/proc/{engine}/numa_maps").read_text().splitlines()
    assert {line.split()[1] for line in lines} == {"interleave:0"}


def test_a_memory_policy_that_cannot_be_had_is_told_and_the_engine_serves_all_the_same(
    container: Container,
) -> None:
    container.environment |= {"MEMORY_POLICY": "one node", "MEMORY_NODES": "1000"}
    with started(container, "serves", "warning: the weights lie where the kernel puts them"):
        pass
    with started(container, "serves", "serving"):
        assert container.parameters.exists()


@pytest.mark.parametrize(
    ("policy", "nodes", "reason"),
    [
        ("replicate", "0,1", "llama.cpp can't keep a copy of the weights on each NUMA node"),
        ("one node", "0,1", "MEMORY_POLICY one node with MEMORY_NODES 0,1"),
        ("one node", "", "MEMORY_POLICY one node with MEMORY_NODES empty"),
        ("interleave", "", "MEMORY_POLICY interleave with MEMORY_NODES empty"),
        ("interleave", "0,x", "MEMORY_NODES.1: Input should be a valid integer"),
        ("scatter", "0", "MEMORY_POLICY: Input should be 'local', 'one node'"),
    ],
)
def test_a_memory_policy_that_makes_no_sense_stops_it_before_anything_is_loaded(
    container: Container, policy: str, nodes: str, reason: str
) -> None:
    container.environment |= {"MEMORY_POLICY": policy, "MEMORY_NODES": nodes}
    code, words = container.run()
    assert code == 2
    assert reason in words
    assert "next: " in words
    assert not container.parameters.exists()


# --- ends ---


@pytest.mark.parametrize(
    ("engine", "words"), [("serves", "serving"), ("loads-for-ever", "loading")]
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_ends_with_0_while_loading_too(
    container: Container, engine: str, words: str, number: signal.Signals
) -> None:
    with started(container, engine, words) as process:
        process.send_signal(number)
        assert process.wait(timeout=20) == 0


def test_a_load_that_fails_ends_it_with_1_after_the_engines_own_words(
    container: Container,
) -> None:
    code, words = container.run("refuses")
    assert code == 1
    assert words.index("failed to load GGUF split") < words.index("could not start")


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ("refuses", "error: the engine could not start with "),
        ("crashes", "error: the engine was ended by SIGABRT"),
    ],
)
def test_what_went_wrong_has_lines_of_its_own_though_the_engine_left_one_half_written(
    container: Container, engine: str, line: str
) -> None:
    _, words = container.run(engine)
    assert any(said.startswith(line) for said in words.splitlines())


def test_an_engine_that_crashes_ends_it_with_the_signals_exit_code(container: Container) -> None:
    code, words = container.run("crashes")
    assert code == 128 + signal.SIGABRT
    assert "the engine was ended by SIGABRT" in words


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        pytest.param("--- + - + --", 1, id="twice in a row after it had listened"),
        pytest.param("---------- stop", 0, id="but not while it is still loading"),
        pytest.param("+ - + - + stop", 0, id="but not for one answer that got lost"),
    ],
)
def test_an_engine_that_no_longer_listens_ends_it(
    container: Container, answers: str, code: int
) -> None:
    program = f"""
import os, signal, sys
from llamacpp_engine.supervise import hold_signals, supervise
looks = iter({answers.replace("stop", "").replace(" ", "")!r})
def answers():
    look = next(looks, None)
    if look is None:
        os.kill(os.getpid(), signal.SIGTERM)
    return look == "+"
hold_signals()
sys.exit(supervise(signal.pause, answers, look_every_s=0.01))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=container.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr


def test_the_engine_does_not_outlive_a_watcher_that_fails(container: Container) -> None:
    process = container.start("serves")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("serving"):
            break
    engine = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    # It can't say that it is stopping.
    process.stderr.close()
    process.terminate()
    assert process.wait(timeout=20) != 0
    deadline = time.monotonic() + 20
    while Path(f"/proc/{engine}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{engine}").exists()


# --- the healthcheck ---


@pytest.mark.parametrize(("status", "code"), [("200 OK", 0), ("503 Service Unavailable", 1)])
def test_health_is_the_engines_own_answer(container: Container, status: str, code: int) -> None:
    with socket.create_server(("127.0.0.1", container.port)) as listener:
        process = health(container)
        connection, _ = listener.accept()
        with connection:
            request = connection.recv(1000)
            connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
            assert process.wait(timeout=20) == code
    assert request.startswith(b"GET /health ")


def test_health_fails_when_nothing_listens(container: Container) -> None:
    assert health(container).wait(timeout=20) == 1


def health(container: Container) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "llamacpp_engine.health"],
        env=container.environment,
        stderr=subprocess.DEVNULL,
    )

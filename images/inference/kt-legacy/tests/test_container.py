"""The whole program with its two processes, as the container runs it. Only the model is a stand-in."""

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine_folder import environment, prove
from reciting import KEY, PATIENCE_S, eventually

HERE = Path(__file__).parent
FILES = {
    "Q4/a-00001-of-00002.gguf": b"one",
    "Q4/a-00002-of-00002.gguf": b"two",
    "hf/config.json": b"{}",
}
RULES = "- match: {name: x}\n  replace: {class: default}\n"
# The real tokenizer needs packages that only the image has. Everything else is the program's own.
PROGRAM = """
import sys
from kt_legacy_engine import serving
from kt_legacy_engine.__main__ import main
from reciting import Bytes, VOCABULARY
class Tokenizer(Bytes):
    vocabulary = VOCABULARY
serving.FileTokenizer = lambda folder, system_message: Tokenizer()
import os
worker = (sys.executable, sys.argv[1], sys.argv[2])
sys.exit(main(os.environ, sys.argv[3:], worker))
"""


@dataclass
class Container:
    folder: Path
    environment: dict[str, str]
    behaviour: str = "serves"

    @property
    def port(self) -> int:
        return int(self.environment["LISTEN_PORT"])

    def arguments(self, **changed: str) -> list[str]:
        said = {
            "model_path": "hf",
            "gguf_path": "Q4",
            "optimize_config_path": str(self.folder / "rules.yaml"),
            "cpu_infer": "2",
            "cache_lens": "512",
            "max_new_tokens": "64",
        }
        return [word for name, value in (said | changed).items() for word in (f"--{name}", value)]

    def start(self, *more: str, **changed: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", PROGRAM, str(HERE / "fake_worker.py"), self.behaviour]
        return subprocess.Popen(
            [*command, *self.arguments(**changed), *more],
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *more: str, **changed: str) -> tuple[int, str]:
        process = self.start(*more, **changed)
        _, words = process.communicate(timeout=PATIENCE_S)
        return process.returncode, words

    def health(self) -> tuple[int, dict[str, object]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("GET", "/health")
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except OSError:
            return 0, {}
        finally:
            connection.close()

    def chat(self, content: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        body = {"model": "tiny", "messages": [{"role": "user", "content": content}]}
        headers = {"Authorization": f"Bearer {KEY}"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        status = connection.getresponse().status
        connection.close()
        return status


@pytest.fixture
def container(tmp_path: Path) -> Container:
    prove(tmp_path, FILES)
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "cache").mkdir()
    for variant in ("avx2", "bf16"):
        (tmp_path / "kernels" / variant).mkdir(parents=True)
    own = {
        "MODEL_NAME": "tiny",
        "KERNELS_DIR": str(tmp_path / "kernels"),
        "CACHE_DIR": str(tmp_path / "cache"),
    }
    return Container(tmp_path, environment(tmp_path, KEY, "kt-legacy", HERE) | own)


@pytest.fixture
def serving(container: Container) -> Iterator["subprocess.Popen[str]"]:
    process = container.start()
    eventually(lambda: container.health()[0] == 200)
    yield process
    process.kill()
    process.communicate()


def test_it_loads_warms_up_answers_and_ends_when_told_to(container: Container) -> None:
    container.environment["FAKE_WORKER_TOLD"] = str(container.folder / "told.json")
    # A Chinese indent, and an emoji of two parts: neither is "printable" to Python.
    container.environment["SYSTEM_MESSAGE"] = "\u3000\u3000你是助手\U0001f469\u200d\U0001f52c"
    process = container.start()
    eventually(lambda: container.health()[0] == 200)
    about = container.health()[1]["about"]
    assert container.chat("Hello") == 200
    process.terminate()
    _, words = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert isinstance(about, list)
    assert about[0].startswith("CPU kernels: ")
    assert about[1] == "GPU: none"
    assert about[0] in words
    assert "warmed up: 8 tokens" in words
    assert words.endswith("stopping\n")


def test_the_process_with_the_model_is_told_what_it_needs_and_no_more(container: Container) -> None:
    told_file = container.folder / "told.json"
    container.environment["FAKE_WORKER_TOLD"] = str(told_file)
    process = container.start("--cpu_variant", "auto")
    eventually(lambda: container.health()[0] == 200)
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    told = json.loads(told_file.read_text())
    assert [Path(shard).name for shard in told["shards"]] == [
        "a-00001-of-00002.gguf",
        "a-00002-of-00002.gguf",
    ]
    assert told["cpu_infer"] == 2
    assert "API_KEY_FILE" not in told["environment"]
    assert told["environment"]["HOME"] == str(container.folder / "cache")
    assert any(path.startswith(str(container.folder / "kernels")) for path in told["path"])


def test_a_build_without_marlin_says_so_before_anything_is_loaded(container: Container) -> None:
    container.behaviour = "loads"
    container.environment["MARLIN"] = "0"
    process = container.start()
    eventually(lambda: container.health()[1].get("loaded_bytes") == 500)
    about = container.health()[1]["about"]
    process.terminate()
    _, words = process.communicate(timeout=PATIENCE_S)
    assert isinstance(about, list)
    assert about[1].startswith("built without Marlin: for checks only")
    assert words.index("built without Marlin") < words.index("half")


def test_a_build_without_marlin_refuses_a_placement_that_needs_it(container: Container) -> None:
    container.environment["MARLIN"] = "0"
    (container.folder / "rules.yaml").write_text("generate_op: KLinearMarlin\n")
    code, words = container.run()
    assert code == 2
    assert "build the image with MARLIN=1" in words


def test_while_it_loads_health_says_how_far_it_is(container: Container) -> None:
    container.behaviour = "loads"
    process = container.start()
    eventually(lambda: container.health()[1].get("loaded_bytes") == 500)
    status, found = container.health()
    assert status == 503
    assert (found["status"], found["total_bytes"]) == ("loading", 1000)
    assert found["eta_s"] is not None
    assert container.chat("Hello") == 503
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("behaviour", "code", "words"),
    [
        ("refuses", 3, "ended by itself with exit code 3"),
        ("crashes", 128 + signal.SIGABRT, "ended by SIGABRT"),
        # More than 128, and there is no such signal.
        ("ends 255", 255, "ended by itself with exit code 255"),
    ],
)
def test_an_engine_that_does_not_start_ends_it_with_its_own_exit_code(
    container: Container, behaviour: str, code: int, words: str
) -> None:
    container.behaviour = behaviour
    found, said = container.run()
    assert found == code
    assert words in said


@pytest.mark.parametrize(
    ("behaviour", "code", "words"),
    [
        ("breaks", 9, "ended by itself with exit code 9"),
        # At once, by us: what it has in its memory is not to be trusted.
        ("spoils", 1, "error: the engine's logits are no numbers"),
    ],
)
def test_an_engine_that_fails_later_ends_it_too(
    container: Container, behaviour: str, code: int, words: str
) -> None:
    container.behaviour = behaviour
    process = container.start()
    eventually(lambda: container.health()[0] == 200)
    assert container.chat("a long prompt") == 503
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert words in said


def test_a_model_outlives_nobody(container: Container) -> None:
    process = container.start()
    eventually(lambda: container.health()[0] == 200)
    (worker,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    eventually(lambda: not Path(f"/proc/{worker}").exists() or _is_zombie(worker))


def _is_zombie(pid: str) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")


# --- refusals ---


def test_a_single_worker_thread_too_few_is_refused(container: Container) -> None:
    code, words = container.run(cpu_infer="1")
    assert code == 2
    assert "--cpu_infer 1 means 0 threads" in words


def test_weights_that_are_not_proven_are_refused(container: Container) -> None:
    shard = next(container.folder.rglob("a-00002-of-00002.gguf"))
    shard.write_bytes(b"changed")
    code, words = container.run()
    assert code == 6
    assert "a-00002-of-00002.gguf: the file was changed" in words


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"gguf_path": "Q8"}, "there are no weights in"),
        ({"optimize_config_path": "/nothing.yaml"}, "there is no rule file"),
        ({"max_new_tokens": "600"}, "--max_new_tokens 600 is not between 1 and the 512 tokens"),
        ({"chunk_size": "0"}, "--chunk_size 0"),
        ({"cpu_infer": "many"}, "invalid int value"),
        ({"unknown": "1"}, "unrecognized arguments: --unknown 1"),
    ],
)
def test_arguments_that_can_not_be_used_are_refused(
    container: Container, changed: dict[str, str], words: str
) -> None:
    code, said = container.run(**changed)
    assert code == 2
    assert words in said


def test_without_a_model_folder_the_weights_header_must_tell(container: Container) -> None:
    whole = container.arguments()
    container.arguments = lambda **_: whole[2:]  # type: ignore[method-assign]
    code, words = container.run()
    assert code == 2
    assert "the model can't be told from the header of" in words
    assert "it ends after 3 bytes" in words


def test_a_cache_that_can_not_be_written_is_refused(container: Container) -> None:
    container.environment["CACHE_DIR"] = str(container.folder / "nothing")
    code, words = container.run()
    assert code == 2
    assert "the cache folder" in words


def test_settings_that_are_missing_are_named(container: Container) -> None:
    del container.environment["MODEL_NAME"]
    code, words = container.run()
    assert code == 2
    assert "MODEL_NAME: Field required" in words


def test_the_healthcheck_is_healths_own_answer(
    container: Container, serving: "subprocess.Popen[str]"
) -> None:
    def check() -> tuple[int, str]:
        command = [sys.executable, "-m", "kt_legacy_engine.health"]
        done = subprocess.run(
            command, env=container.environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout

    code, said = check()
    assert code == 0
    assert json.loads(said)["status"] == "ok"
    serving.terminate()
    serving.wait(PATIENCE_S)
    assert check() == (1, "")


def test_the_healthcheck_tells_how_far_a_load_is(container: Container) -> None:
    container.behaviour = "loads"
    process = container.start()
    eventually(lambda: container.health()[1].get("loaded_bytes") == 500)
    command = [sys.executable, "-m", "kt_legacy_engine.health"]
    done = subprocess.run(
        command, env=container.environment, capture_output=True, text=True, check=False
    )
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["status"], told["loaded_bytes"], told["total_bytes"]) == ("loading", 500, 1000)


@pytest.mark.parametrize(
    ("variables", "more", "why"),
    [
        ({"MEMORY_POLICY": "one node"}, (), "MEMORY_POLICY one node with MEMORY_NODES empty"),
        ({"MEMORY_POLICY": "interleave"}, (), "MEMORY_POLICY interleave with MEMORY_NODES empty"),
        (
            {"MEMORY_POLICY": "replicate", "MEMORY_NODES": "0,1"},
            (),
            "MEMORY_POLICY replicate without --numa_copies",
        ),
        ({}, ("--numa_copies",), "MEMORY_POLICY local with --numa_copies"),
        ({"MEMORY_POLICY": "odd"}, (), "MEMORY_POLICY: Input should be"),
    ],
)
def test_a_memory_policy_that_can_not_be_used_is_refused(
    container: Container, variables: dict[str, str], more: tuple[str, ...], why: str
) -> None:
    container.environment |= variables
    code, words = container.run(*more)
    assert code == 2
    assert why in words


def test_the_process_with_the_model_knows_where_the_weights_are_to_lie(
    container: Container,
) -> None:
    told_file = container.folder / "told.json"
    container.environment |= {
        "FAKE_WORKER_TOLD": str(told_file),
        "MEMORY_POLICY": "one node",
        "MEMORY_NODES": "0",
    }
    process = container.start()
    eventually(lambda: container.health()[0] == 200)
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert json.loads(told_file.read_text())["memory"] == ["one node", [0]]

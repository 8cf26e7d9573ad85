"""The whole program `python3 -m llamacpp_engine` as its container starts it, with a stand-in for the wheel."""

import contextlib
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from engine_folder import environment, prove, weights_in

HERE = Path(__file__).parent
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
        return weights_in(self.folder)

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


def a_container(tmp_path: Path, first_shard: str) -> Container:
    prove(tmp_path, dict(zip(SHARDS, (FIRST_SHARDS[first_shard], b"shard 1"), strict=True)))
    return Container(
        tmp_path,
        environment(tmp_path, KEY, "llamacpp", HERE / "fake_engine")
        | {
            "FAKE_ENGINE_PARAMS": str(tmp_path / "parameters.json"),
            "MODEL_FILE": SHARDS[0],
            "MODEL_NAME": "a-model",
            "CONTEXT_TOKENS": "4096",
            "SLOTS": "3",
            "MAX_TOKENS": "777",
            "THREADS": "5",
        },
    )


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

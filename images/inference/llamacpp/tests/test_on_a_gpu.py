"""The program on a GPU: llama.cpp's own server in the place of the wheel, with a stand-in for it."""

import json
import os
import signal
from pathlib import Path

import pytest

from images.inference.llamacpp.tests.engine_process import (
    HERE,
    KEY,
    SHARDS,
    TEMPLATE,
    Container,
    a_container,
    started,
)

LISTENING = "main: server is listening"


@pytest.fixture
def container(tmp_path: Path) -> Container:
    made = a_container(tmp_path, "with a template")
    made.environment |= {
        "LLAMA_SERVER": str(HERE / "fake_engine/llama-server"),
        "CUDA_VISIBLE_DEVICES": "0",
        "FAKE_CARDS": "1",
    }
    return made


def told(container: Container) -> list[str]:
    with started(container, "not the wheel", LISTENING):
        words: list[str] = json.loads(container.parameters.read_text())
    return words


def test_the_program_is_told_what_the_wheel_is_and_to_keep_the_experts_in_ram(
    container: Container,
) -> None:
    assert told(container) == [
        *("--model", str(container.weights / SHARDS[0]), "--alias", "a-model"),
        *("--host", "0.0.0.0", "--port", str(container.port)),  # noqa: S104 - what it must be
        *("--api-key-file", str(container.folder / "key")),
        *("--ctx-size", str(3 * 4096), "--parallel", "3", "--predict", "777"),
        *("--threads", "5", "--threads-batch", "5"),
        *("--device", "CUDA0", "--n-gpu-layers", "all", "--cpu-moe"),
        *("--fit", "off", "--cache-ram", "0", "--load-mode", "mmap", "--jinja"),
        *("--warmup", "--offline", "--no-ui", "--no-slots", "--metrics"),
        *("--sse-ping-interval", "-1"),
    ]


def test_several_cards_get_as_many_layers_each(container: Container) -> None:
    # As CDI gives them: the host's own numbers.
    container.environment |= {"CUDA_VISIBLE_DEVICES": "1,3", "FAKE_CARDS": "2"}
    words = told(container)
    assert words[words.index("--device") + 1] == "CUDA0,CUDA1"
    assert words[words.index("--split-mode") + 1] == "layer"
    assert words[words.index("--tensor-split") + 1] == "1,1"


def test_the_key_is_in_no_list_of_processes(container: Container) -> None:
    with started(container, "not the wheel", LISTENING) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        seen = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (process.pid, *children)]
        kept = [Path(f"/proc/{pid}/environ").read_bytes() for pid in children]
    assert len(children) == 1
    assert not any(KEY.encode() in words for words in (*seen, *kept))


def test_a_system_message_goes_in_front_of_the_models_own_template(container: Container) -> None:
    container.environment["SYSTEM_MESSAGE"] = "Answer briefly."
    words = told(container)
    # Without --jinja before it, only templates that the program knows by name are taken.
    assert words.index("--jinja") < words.index("--chat-template")
    template = words[words.index("--chat-template") + 1]
    assert template.endswith(TEMPLATE)
    assert "Answer briefly." in template


@pytest.mark.parametrize(
    ("wanted", "cards", "why"),
    [
        ("0", "0", "it is to use 1 and sees 0"),
        ("0,1", "1", "it is to use 2 and sees 1"),
    ],
)
def test_a_card_that_is_missing_ends_it_with_3_instead_of_answers_from_the_cpu(
    container: Container, wanted: str, cards: str, why: str
) -> None:
    container.environment |= {"CUDA_VISIBLE_DEVICES": wanted, "FAKE_CARDS": cards}
    code, words = container.run()
    assert code == 3
    lines = words.splitlines()
    assert lines[0] == "error: the engine does not start: there is no GPU that it can use"
    assert lines[1] == f"why: {why}"
    assert lines[-1].startswith("next: python3 -m orchestrator doctor")
    assert not container.parameters.exists()


def test_the_driver_s_own_words_say_why_there_is_no_card(container: Container) -> None:
    container.environment["FAKE_CARDS"] = "0"
    _, words = container.run()
    assert "why: ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device" in words


def test_a_program_that_can_t_be_run_is_told_with_the_reason(container: Container) -> None:
    container.environment["LLAMA_SERVER"] = "/nowhere/llama-server"
    code, words = container.run()
    assert code == 3
    assert "No such file or directory: '/nowhere/llama-server'" in words


def test_weights_that_are_not_proven_stop_it_before_the_program_is_asked_anything(
    container: Container,
) -> None:
    (container.weights / "receipt.json").unlink()
    container.environment["FAKE_CARDS"] = "0"
    code, _ = container.run()
    assert code == 6


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_ends_with_0(container: Container, number: signal.Signals) -> None:
    with started(container, "not the wheel", LISTENING) as process:
        process.send_signal(number)
        assert process.wait(timeout=20) == 0


def test_a_program_that_dies_ends_it_with_its_signal(container: Container) -> None:
    with started(container, "not the wheel", LISTENING) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        os.kill(int(children), signal.SIGABRT)
        assert process.wait(timeout=20) == 128 + signal.SIGABRT


@pytest.mark.skipif(
    not Path("/proc/self/numa_maps").exists(), reason="this kernel has no memory policies"
)
def test_the_program_runs_under_the_memory_policy(container: Container) -> None:
    container.environment |= {"MEMORY_POLICY": "interleave", "MEMORY_NODES": "0"}
    with started(container, "not the wheel", LISTENING) as process:
        child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        lines = Path(f"/proc/{child}/numa_maps").read_text().splitlines()
    assert {line.split()[1] for line in lines} == {"interleave:0"}

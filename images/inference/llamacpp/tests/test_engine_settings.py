"""What `python3 -m llamacpp_engine` makes of what it is given: refused with the reason, or told the engine."""

import json
import os
from pathlib import Path

import pytest

from images.inference.llamacpp.tests.engine_process import (
    KEY,
    SHARDS,
    TEMPLATE,
    Container,
    a_container,
    started,
)

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


def test_a_system_message_may_hold_any_sign_that_people_write(container: Container) -> None:
    message = "\u3000\u3000你是助手\u00a0\U0001f469\u200d\U0001f52c"
    container.environment["SYSTEM_MESSAGE"] = message
    with started(container, "serves", "serving"):
        assert container.parameters.exists()
    assert message in json.loads(container.parameters.read_text())["chat_template"]


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

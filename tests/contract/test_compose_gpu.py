"""Compose on a host with GPUs: the override files, their engines and the cards. No container is started."""

from pathlib import Path
from typing import Any

import pytest

import fitting
import hosts
from composed import REFS, ROOT, SGLANG, a_gpu_advice, a_gpu_env, an_env, folders, read_by_compose
from kt_legacy_engine.arguments import parse
from kt_legacy_engine.settings import Settings
from kt_sglang_engine.settings import Settings as SglangSettings
from orchestrator.adapters.stack import compose_files
from orchestrator.core.advice import Advice, advise
from orchestrator.core.plan import stack_env
from orchestrator.core.render import as_env_file


@pytest.fixture(scope="module")
def gpu_config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return read_by_compose(tmp_path_factory.mktemp("gpu"), a_gpu_env(gpus="1"))


def test_without_a_gpu_nothing_but_compose_yaml_is_read() -> None:
    assert "COMPOSE_FILE" not in an_env()


def test_the_orchestrator_reads_the_same_files_as_a_plain_docker_compose(tmp_path: Path) -> None:
    env_file = tmp_path / "stack.env"
    env_file.write_text(as_env_file(a_gpu_env()), encoding="utf-8")
    names = ("compose.yaml", "configs/compose/kt-legacy.yaml", "configs/compose/nvidia.yaml")
    assert compose_files(ROOT, env_file) == [ROOT / name for name in names]
    env_file.write_text(as_env_file(an_env()), encoding="utf-8")
    assert compose_files(ROOT, env_file) == [ROOT / "compose.yaml"]


def test_on_a_gpu_the_engine_is_as_hardened_as_without(
    config: dict[str, Any], gpu_config: dict[str, Any]
) -> None:
    plain, found = config["services"]["inference"], gpu_config["services"]["inference"]
    same = ("user", "read_only", "cap_drop", "cap_add", "security_opt", "init", "networks")
    assert [found[name] for name in same] == [plain[name] for name in same]
    assert "privileged" not in found
    assert "ports" not in found
    for name in ("gateway", "webui"):
        assert gpu_config["services"][name] == config["services"][name]


def test_the_engine_gets_its_command_its_rules_and_a_cache_that_may_run_programs(
    gpu_config: dict[str, Any],
) -> None:
    found = gpu_config["services"]["inference"]
    arguments = parse(found["command"])
    assert arguments.gguf_path == Path("Q4_K_M")
    (rules,) = [mount for mount in found["volumes"] if mount["target"] == "/placement"]
    assert rules["read_only"] is True
    assert arguments.optimize_config_path.parent == Path("/placement")
    assert found["tmpfs"] == ["/tmp", "/cache:exec,mode=1777,size=1g"]
    assert found["healthcheck"]["test"] == ["CMD", "python3", "-m", "kt_legacy_engine.health"]
    assert found["healthcheck"]["interval"] == "5s"
    assert "ulimits" not in found
    assert int(found["shm_size"]) == 16 << 30


@pytest.fixture(scope="module")
def sglang_config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return read_by_compose(tmp_path_factory.mktemp("sglang"), a_gpu_env(SGLANG))


def test_sglang_is_as_hardened_as_the_engine_without_a_gpu(
    config: dict[str, Any], sglang_config: dict[str, Any]
) -> None:
    plain, found = config["services"]["inference"], sglang_config["services"]["inference"]
    same = ("user", "read_only", "cap_drop", "cap_add", "security_opt", "init", "networks")
    assert [found[name] for name in same] == [plain[name] for name in same]
    assert "privileged" not in found
    assert "ports" not in found
    assert "ulimits" not in found
    # The weights folder, read only, is all that it sees of the host beside the locks.
    assert found["volumes"] == plain["volumes"]
    for name in ("gateway", "webui"):
        assert sglang_config["services"][name] == config["services"][name]


def test_sglang_gets_its_command_and_a_cache_that_may_run_programs(
    sglang_config: dict[str, Any],
) -> None:
    found = sglang_config["services"]["inference"]
    profile = fitting.a_profile(SGLANG)
    planned = a_gpu_advice(SGLANG).placement.arguments
    assert tuple(found["command"]) == planned
    assert planned[planned.index("--model") + 1] == str(Path(profile.model_file).parent)
    assert found["tmpfs"] == ["/tmp", "/cache:exec,mode=1777,size=4g"]
    assert found["healthcheck"]["test"] == ["CMD", "python3", "-m", "kt_sglang_engine.health"]
    assert found["healthcheck"]["interval"] == "5s"
    assert int(found["shm_size"]) == 16 << 30
    (device,) = found["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu", "compute", "utility"]


def test_sglang_gets_every_variable_that_it_can_not_do_without(
    sglang_config: dict[str, Any],
) -> None:
    given = set(sglang_config["services"]["inference"]["environment"])
    fields = SglangSettings.model_fields
    needed = {name.upper() for name, field in fields.items() if field.is_required()}
    assert needed <= given
    assert {"MEMORY_POLICY", "MEMORY_NODES"} <= given


def test_other_rules_make_another_container() -> None:
    digests = {
        dict(stack_env(an_advice_for_gpu(), hosts.h200(), folders(), REFS, rules))[
            "STACK_RULES_DIGEST"
        ]
        for rules in ("a", "b")
    }
    assert len(digests) == 2


def an_advice_for_gpu() -> Advice:
    return advise(fitting.a_profile("demo-gpu"), (), hosts.h200(), fitting.tinyseek(), 0)


@pytest.mark.parametrize(
    ("gpus", "driver", "given", "used"),
    [
        ("", "nvidia", "0", "0"),
        ("1", "nvidia", "1", "0"),
        ("0,1", "nvidia", "0,1", "0,1"),
        ("1,0", "nvidia", "1,0", "1,0"),
        ("1", "cdi", "nvidia.com/gpu=1", "0"),
        ("0,1", "cdi", "nvidia.com/gpu=all", "0,1"),
    ],
)
def test_cards_are_given_as_this_docker_gives_them(
    tmp_path: Path, gpus: str, driver: str, given: str, used: str
) -> None:
    profile = "deepseek-r1-q4km-2gpu" if "," in gpus else "demo-gpu"
    read = read_by_compose(tmp_path, a_gpu_env(profile, gpus, cdi=driver == "cdi"))
    found = read["services"]["inference"]
    (device,) = found["deploy"]["resources"]["reservations"]["devices"]
    assert device == {
        "driver": driver,
        "device_ids": [given],
        "capabilities": ["gpu", "compute", "utility"],
    }
    assert found["environment"]["CUDA_VISIBLE_DEVICES"] == used
    assert found["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    others = {name: service for name, service in read["services"].items() if name != "inference"}
    assert not any("deploy" in service for service in others.values())


def test_a_folder_of_weights_with_odd_letters_arrives_as_it_is(tmp_path: Path) -> None:
    env = a_gpu_env(model_file="my q4 (v2); $HOME/a-00001-of-00002.gguf")
    command = read_by_compose(tmp_path, env)["services"]["inference"]["command"]
    words = [word.replace("$$", "$") for word in command]
    assert parse(words).gguf_path == Path("my q4 (v2); $HOME")


def test_kt_legacy_gets_every_variable_that_it_can_not_do_without(
    gpu_config: dict[str, Any],
) -> None:
    given = set(gpu_config["services"]["inference"]["environment"])
    needed = {n.upper() for n, field in Settings.model_fields.items() if field.is_required()}
    assert needed <= given
    assert {"MEMORY_POLICY", "MEMORY_NODES", "SYSTEM_MESSAGE"} <= given
    # These are llama.cpp's. The rest stands in the command.
    llamacpp = {"MODEL_FILE", "CONTEXT_TOKENS", "SLOTS", "MAX_TOKENS", "THREADS"}
    cuda = {"CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"}
    assert given - llamacpp - cuda <= {name.upper() for name in Settings.model_fields}

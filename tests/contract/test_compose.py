"""Agreements between compose.yaml, the env file and the images. No container is started."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fitting
import hosts
from fakes import a_host, an_advice
from kt_legacy_engine.arguments import parse
from kt_legacy_engine.settings import Settings
from kt_sglang_engine.settings import Settings as SglangSettings
from orchestrator.adapters import secret_files
from orchestrator.adapters.stack import compose_files
from orchestrator.core.advice import Advice, advise
from orchestrator.core.facts import HostFacts
from orchestrator.core.images import RECIPES
from orchestrator.core.plan import Folders, stack_env
from orchestrator.core.render import as_env_file
from orchestrator.core.settings import Layer

ROOT = Path(__file__).resolve().parents[2]
SGLANG = "qwen3-30b-a3b-bf16"
SERVICES = ("weights", "inference", "gateway", "webui", "prometheus")
ODD = Path("/data/a b#c$d/äß/中文")


def folders(ca_bundle: Path | None = ODD) -> Folders:
    names = ("locks", "job", "source", "weights", "secrets", "control", "usage", "placement")
    return Folders(**dict.fromkeys(names, ODD), ca_bundle=ca_bundle)


REFS = {service: f"appliance/{service}:0123456789ab" for service in SERVICES}


def an_env() -> dict[str, str]:
    return dict(stack_env(an_advice(metrics=True), a_host(), folders(), REFS))


def a_gpu_env(
    profile: str = "demo-gpu", gpus: str = "", *, cdi: bool = False, **changes: Any
) -> dict[str, str]:
    """Of a host with cards: an H200 and its twin."""
    facts = two_h200(cdi=cdi)
    found = a_gpu_advice(profile, gpus, cdi=cdi, **changes)
    return dict(stack_env(found, facts, folders(), REFS, "- rules\n"))


def two_h200(*, cdi: bool = False) -> HostFacts:
    facts = hosts.h200()
    assert facts.gpus
    cards = tuple(facts.gpus[0].model_copy(update={"index": index}) for index in range(2))
    docker = facts.docker.model_copy(update={"nvidia_runtime": not cdi, "cdi": cdi})
    return facts.model_copy(update={"gpus": cards, "docker": docker, "uid": 1000, "gid": 1000})


def a_gpu_advice(profile: str, gpus: str = "", *, cdi: bool = False, **changes: Any) -> Advice:
    layer = Layer(values={"gpus": gpus}, origins={"gpus": "a test"})
    chosen = fitting.a_profile(profile, **changes)
    return advise(chosen, (layer,), two_h200(cdi=cdi), fitting.tinyseek(), 0)


def read_by_compose(folder: Path, env: dict[str, str]) -> dict[str, Any]:
    """As a plain `docker compose --env-file ... up` in the project's folder reads it."""
    env_file = folder / "stack.env"
    env_file.write_text(as_env_file(env), encoding="utf-8")
    command = ["docker", "compose", "--env-file", str(env_file), "config", "--format", "json"]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("STACK_", "COMPOSE_"))}
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=True)
    read: dict[str, Any] = json.loads(done.stdout)
    return read


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The stack as Compose itself reads it, from the env file as we write it."""
    return read_by_compose(tmp_path_factory.mktemp("env"), an_env())


def test_every_variable_of_the_stack_is_written_and_every_written_one_is_used() -> None:
    assert variables_of("compose.yaml") == of_the_stack(an_env())
    for profile in ("demo-gpu", SGLANG):
        env = a_gpu_env(profile)
        used = set().union(*map(variables_of, env["COMPOSE_FILE"].split(":")))
        assert used == of_the_stack(env)


def variables_of(path: str) -> set[str]:
    return set(re.findall(r"\$\{([A-Z0-9_]+)[}:]", (ROOT / path).read_text(encoding="utf-8")))


def of_the_stack(env: dict[str, str]) -> set[str]:
    """Without Compose's own."""
    return {name for name in env if not name.startswith("COMPOSE_")}


def test_compose_reads_odd_folder_names_as_they_are(config: dict[str, Any]) -> None:
    sources = {mount["source"] for mount in config["services"]["weights"]["volumes"]}
    # `config` prints a file for Compose to read again, so it doubles the sign of a variable.
    assert {source.replace("$$", "$") for source in sources} == {str(ODD)}


def test_the_services_are_those_of_the_design(config: dict[str, Any]) -> None:
    assert set(config["services"]) == set(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_is_hardened(config: dict[str, Any], service: str) -> None:
    found = config["services"][service]
    assert found["user"] == "1000:1000"
    assert found["read_only"] is True
    assert found["cap_drop"] == ["ALL"]
    # Where Docker's daemon is limited itself, asking it for more makes no container at all.
    assert "ulimits" not in found
    assert found.get("cap_add", []) == (["SYS_NICE"] if service == "inference" else [])
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert found["init"] is True
    assert "privileged" not in found
    assert "/tmp" in found["tmpfs"]
    assert int(found["mem_limit"]) > 0
    assert found["pids_limit"] > 0
    assert found["logging"]["options"]["max-size"]


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_has_a_healthcheck_that_needs_no_curl(
    config: dict[str, Any], service: str
) -> None:
    assert config["services"][service]["healthcheck"]["test"][:3] == ["CMD", "python3", "-m"]


@pytest.mark.parametrize("service", SERVICES)
def test_images_are_named_by_content_and_never_fetched_behind_our_back(
    config: dict[str, Any], service: str
) -> None:
    found = config["services"][service]
    assert re.fullmatch(r"appliance/[a-z-]+:[0-9a-f]{12}", found["image"])
    assert found["pull_policy"] == "never"
    assert "build" not in found


@pytest.mark.parametrize("service", SERVICES)
def test_no_secret_is_in_a_services_environment(config: dict[str, Any], service: str) -> None:
    for name, value in config["services"][service].get("environment", {}).items():
        secret = re.search("KEY|PASSWORD|TOKEN|SECRET", name) and not name.endswith("_FILE")
        # These count tokens, and are none.
        counts = name in {"CONTEXT_TOKENS", "MAX_TOKENS"}
        assert not secret or counts, f"{name}={value}"


def test_every_secret_mounted_is_made_and_every_secret_made_is_mounted(
    config: dict[str, Any],
) -> None:
    assert set(config["secrets"]) == {*secret_files.MAKERS, *secret_files.GIVEN}


def test_only_the_weights_job_has_egress(config: dict[str, Any]) -> None:
    networks = config["networks"]
    assert networks["engine"]["internal"] is True
    masquerade = "com.docker.network.bridge.enable_ip_masquerade"
    assert networks["edge"]["driver_opts"][masquerade] == "false"
    open_ones = {name for name in networks if name not in {"engine", "edge"}}
    users = {
        service for service in SERVICES if open_ones & set(config["services"][service]["networks"])
    }
    assert users == {"weights"}


def test_ports_are_published_on_loopback_only_and_never_the_engines(
    config: dict[str, Any],
) -> None:
    published = {
        service: [(port["host_ip"], port["published"]) for port in found.get("ports", ())]
        for service, found in config["services"].items()
    }
    assert published == {
        "weights": [],
        "inference": [],
        "gateway": [("127.0.0.1", "8080")],
        "webui": [("127.0.0.1", "3000")],
        "prometheus": [("127.0.0.1", "9090")],
    }


def test_nothing_starts_before_what_it_stands_on(config: dict[str, Any]) -> None:
    conditions = {
        service: {name: rule["condition"] for name, rule in found.get("depends_on", {}).items()}
        for service, found in config["services"].items()
    }
    assert conditions == {
        "weights": {},
        "inference": {"weights": "service_completed_successfully"},
        "gateway": {"inference": "service_healthy"},
        "webui": {"gateway": "service_healthy"},
        "prometheus": {"gateway": "service_started"},
    }


def test_weights_are_written_by_the_job_alone(config: dict[str, Any]) -> None:
    mounts = {
        service: {
            mount["target"]: mount.get("read_only", False)
            for mount in found.get("volumes", ())
            if mount["type"] == "bind"
        }
        for service, found in config["services"].items()
    }
    assert mounts["weights"] == {
        "/job": True,
        "/source": True,
        "/weights": False,
        "/etc/ssl/host-ca.crt": True,
    }
    assert mounts["inference"] == {"/locks": True, "/weights": True}
    assert mounts["gateway"] == {"/control": False, "/usage": False}
    assert mounts["webui"] == {}
    etc = "/etc/prometheus"
    assert mounts["prometheus"] == {
        f"{etc}/prometheus.yml": True,
        f"{etc}/prometheus.rules.yml": True,
    }


def test_prometheus_is_there_for_who_asked_for_it_and_nobody_else(config: dict[str, Any]) -> None:
    assert {name for name, found in config["services"].items() if found.get("profiles")} == {
        "prometheus"
    }
    assert "COMPOSE_PROFILES" not in stack_env(an_advice(), a_host(), folders(None), {})


# --- a host with GPUs


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


@pytest.mark.parametrize(
    ("service", "module"),
    [
        ("weights", "downloader.settings"),
        ("inference", "llamacpp_engine.settings"),
        ("gateway", "gateway.settings"),
        ("webui", "webui_launcher.settings"),
    ],
)
def test_every_variable_given_to_a_service_is_one_that_it_reads(
    config: dict[str, Any], service: str, module: str
) -> None:
    source = next((ROOT / "images").glob(f"**/src/{module.replace('.', '/')}.py"))
    text = source.read_text(encoding="utf-8").lower()
    for variable in config["services"][service]["environment"]:
        assert re.search(rf"\b{variable.lower()}\b", text), f"{module} does not read {variable}"


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


@pytest.mark.parametrize("name", [*RECIPES, "base"])
def test_images_start_from_the_base_they_are_given(name: str) -> None:
    path = RECIPES[name].dockerfile if name in RECIPES else "base/Dockerfile"
    text = (ROOT / "images" / path).read_text(encoding="utf-8")
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE))
    starts = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) - stages
    assert starts == ({"${ROOTFS}"} if name == "base" else {"${BASE}"})


@pytest.mark.parametrize(
    "lock",
    [
        *sorted(ROOT.glob("*.lock")),
        *sorted(ROOT.glob("images/**/*.lock")),
        *sorted(ROOT.glob("tests/clients/*.lock")),
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_package_is_pinned_with_hashes_and_without_an_address(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert not re.search(r"https?://|--index|--find-links", text)
    packages = re.split(
        r"\n(?=[a-zA-Z0-9])",
        "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#")).strip(),
    )
    assert packages
    for package in packages:
        assert re.match(r"[A-Za-z0-9._-]+(\[[^]]+\])?==\S+", package), package
        assert "--hash=sha256:" in package, package


def test_every_package_of_node_is_pinned_with_its_hash_and_without_an_address() -> None:
    lock = json.loads((ROOT / "tests/clients/package-lock.json").read_text(encoding="utf-8"))
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert all(package["integrity"].startswith("sha512-") for package in packages)
    assert not any("resolved" in package for package in packages)

"""Agreements between compose.yaml, the env file and the images. No container is started."""

import re
from typing import Any

import pytest

from composed import ODD, ROOT, SERVICES, SGLANG, a_gpu_env, an_env, folders
from fakes import a_host, an_advice
from orchestrator.adapters import secret_files
from orchestrator.core.plan import stack_env


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

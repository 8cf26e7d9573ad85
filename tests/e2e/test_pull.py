"""Weights from a hub, fetched inside Docker: attached to, stopped, resumed, locked, and served."""

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import docker
import pytest

from e2e.scenario import PARIS, ROOT, Appliance, eventually
from hub import Hub

REPO = "appliance/TinySeek"
MODEL = "Q4_K_M/TinySeek-Q4_K_M-00001-of-00003.gguf"
PROFILE = f"""
name = "tiny"
summary = "TinySeek from a hub"
engine = "llamacpp"
route = "test model"
status = "experimental"
rank = 9
quality = "a test"
model_file = "{MODEL}"

[model]
family = "TinySeek"
architecture = "deepseek2"
quantisation = "Q4_K_M"
parameters = 18_900_000
total_bytes = 12_349_824
files = 3
source = "a test"

[[sources]]
kind = "huggingface"
repo = "{REPO}"
patterns = ["Q4_K_M/*"]

[serving]
context_tokens = 2048
slots = 2
max_tokens = 1024
load_timeout_s = 120

[needs]
source = "a test"
memory = {{ least_bytes = 536_870_912, source = "a test" }}

[acceptance]
prompt = "What is the capital of France?"
contains = "{PARIS}"
max_tokens = 32
"""
TOTAL_BYTES = 4_603_296 + 4_785_344 + 2_961_184
SLOWLY = "1M"


def an_address_containers_reach() -> str:
    """The host's own address on Docker's default bridge: loopback is the container's."""
    with closing(docker.from_env()) as engine:
        config = engine.networks.get("bridge").attrs["IPAM"]["Config"][0]
    # Some engines name the gateway only where it was chosen; it is the first address.
    return str(config.get("Gateway") or next(ip_network(config["Subnet"]).hosts()))


@pytest.fixture(scope="session")
def address() -> str:
    return an_address_containers_reach()


@pytest.fixture
def hub(tmp_path: Path, address: str) -> Iterator[Hub]:
    root = tmp_path / "hub"
    shutil.copytree(ROOT / "tests/fixtures/tinyseek/Q4_K_M", root / REPO / "Q4_K_M")
    with Hub(root, host=address) as hub:
        yield hub


@pytest.fixture
def fresh(
    hub: Hub, address: str, tmp_path: Path, new_appliance: Callable[..., Appliance]
) -> Appliance:
    """Nothing is here yet, not even a lock: only a profile that names the hub."""
    configs = tmp_path / "configs"
    (configs / "profiles").mkdir(parents=True)
    (configs / "profiles" / "tiny.toml").write_text(PROFILE)
    return new_appliance(
        profile="tiny", configs_dir=str(configs), hf_endpoint=f"http://{address}:{hub.port}"
    )


def download(appliance: Appliance) -> dict[str, Any] | None:
    """What `status` says of it, as from another terminal."""
    said: dict[str, Any] | None = json.loads(appliance.run("status", "--json").stdout)["download"]
    return said


def under_way(appliance: Appliance, terminal: subprocess.Popen[str]) -> dict[str, Any]:
    def bytes_arrive() -> dict[str, Any] | None:
        assert terminal.poll() is None, terminal.communicate()[1]
        seen = download(appliance)
        return seen if seen and seen["done_bytes"] else None

    found: dict[str, Any] = eventually(bytes_arrive, "bytes arrive")
    return found


def test_a_download_outlives_its_terminal_is_attached_to_and_then_served(
    fresh: Appliance,
) -> None:
    terminal = fresh.start("pull", "--limit-rate", SLOWLY)
    seen = under_way(fresh, terminal)
    assert seen["total_bytes"] == TOTAL_BYTES
    terminal.send_signal(signal.SIGKILL)
    terminal.communicate()
    job = fresh.running("weights")
    assert job is not None

    again = fresh.run("pull", "--progress=json")

    assert again.returncode == 0, again.stderr
    events = [json.loads(line) for line in again.stdout.splitlines()]
    told = [event["progress"]["done_bytes"] for event in events if event.get("progress")]
    assert told == sorted(told)
    assert events[-1]["event"] == "Pulled"
    ended = fresh.container("weights")
    assert ended is not None
    assert ended.id == job.id
    assert ended.attrs["State"]["StartedAt"] == job.attrs["State"]["StartedAt"]

    fresh.up()
    assert fresh.ask().json()["choices"][0]["message"]["content"] == PARIS


def test_an_interrupt_leaves_the_job_running_and_says_how_to_stop_it(
    fresh: Appliance, hub: Hub
) -> None:
    terminal = fresh.start("pull", "--limit-rate", SLOWLY)
    under_way(fresh, terminal)
    other = fresh.start("pull")
    shown = eventually(lambda: other.stderr and other.stderr.readline(), "another terminal")
    assert "another run looks after this download" in shown
    other.send_signal(signal.SIGINT)
    other.communicate(timeout=60)
    terminal.send_signal(signal.SIGINT)
    _, said = terminal.communicate(timeout=60)
    assert terminal.returncode == 130
    assert "pull --stop" in said
    assert fresh.running("weights") is not None

    assert fresh.run("pull", "--stop").returncode == 0
    assert fresh.running("weights") is None
    unproven = fresh.run("verify")
    assert unproven.returncode == 6
    assert "receipt" in unproven.stderr

    assert fresh.run("pull").returncode == 0
    assert fresh.run("verify", "--full").returncode == 0
    assert "proven" in fresh.run("weights", "list").stdout


def test_a_lock_holds_until_it_is_renewed_and_is_enough_where_the_hub_is_gone(
    fresh: Appliance, hub: Hub
) -> None:
    first = hub.commit(REPO)
    assert fresh.run("pull", "--detach").returncode == 0
    lock = Path(fresh.settings["configs_dir"]) / "locks" / "tiny.json"
    assert json.loads(lock.read_text())["revision"] == first
    assert fresh.run("pull").returncode == 0

    hub.push(REPO, {"Q4_K_M/README.md": b"hello\n"})
    assert fresh.run("pull").returncode == 0
    assert json.loads(lock.read_text())["revision"] == first
    renewed = fresh.run("pull", "--update-lock")
    assert renewed.returncode == 0, renewed.stderr
    assert "+ Q4_K_M/README.md  6 bytes" in renewed.stderr
    assert json.loads(lock.read_text())["revision"] == hub.commit(REPO) != first

    hub.close()
    assert fresh.run("pull").returncode == 0
    removed = fresh.run("weights", "remove", f"appliance--TinySeek/{first[:12]}", "--yes")
    assert removed.returncode == 0, removed.stderr


def test_a_pattern_that_matches_nothing_starts_no_job(fresh: Appliance) -> None:
    profile = Path(fresh.settings["configs_dir"]) / "profiles" / "tiny.toml"
    profile.write_text(PROFILE.replace('["Q4_K_M/*"]', '["Q4_KM/*"]'))
    refused = fresh.run("pull")
    assert refused.returncode == 2
    assert "Q4_K_M" in refused.stderr
    assert fresh.container("weights") is None


def test_a_hub_that_is_down_is_named_where_there_is_no_lock(fresh: Appliance, hub: Hub) -> None:
    hub.close()
    refused = fresh.run("pull")
    assert refused.returncode == 5
    assert fresh.settings["hf_endpoint"].removeprefix("http://") in refused.stderr
    assert fresh.container("weights") is None

"""A host's own tools: asked in English, with bounded patience, and perhaps not there."""

from pathlib import Path

import pytest

from machines import a_tool, a_tree
from orchestrator.adapters.host.cards import read_cards
from orchestrator.adapters.host.commands import ask
from orchestrator.adapters.host.containers import read_docker
from orchestrator.core.checks.finding import Severity
from orchestrator.core.checks.gpu import gpu_driver
from orchestrator.core.facts import Gpu, HostFacts

HOSTS = Path(__file__).parents[1] / "fixtures" / "hosts"


def test_a_tool_is_asked_in_english_within_bounds_and_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_tool(tmp_path, "speaks", 'echo "$LC_ALL"; exit 3')
    a_tool(tmp_path, "hangs", "exec sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    answer = ask("speaks", within_s=30)
    assert answer is not None
    assert (answer.text, answer.ok) == ("C\n", False)
    assert ask("hangs", within_s=0.1) is None
    assert ask("no-such-tool", within_s=1) is None


SMI = r"""
case "$*" in
  *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2;;
  --query-gpu=*) cat <<'END'
index, name, memory.total [MiB], memory.used [MiB], memory.free [MiB], persistence_mode, driver_version, pci.bus_id
0, Tesla V100-PCIE-32GB, 32510 MiB, 5038 MiB, 27472 MiB, Enabled, 470.223.02, 00000000:3B:00.0
END
  ;;
  *) cat "$TABLE";;
esac
"""


def test_cards_of_an_old_driver_are_asked_again_without_the_fields_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_tool(tmp_path / "bin", "nvidia-smi", SMI)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.setenv("TABLE", str(HOSTS / "31-v100-driver470-old-table" / "nvidia-smi.txt"))
    root = a_tree(tmp_path / "root", {"sys/bus/pci/devices/0000:3b:00.0/numa_node": "1\n"})
    cards = read_cards(root)
    assert (cards.driver_version, cards.driver_cuda) == ("470.223.02", "11.4")
    assert cards.gpus == (
        Gpu(
            index=0,
            name="Tesla V100-PCIE-32GB",
            compute_capability=(7, 0),
            memory_bytes=32510 << 20,
            memory_used_bytes=5038 << 20,
            memory_free_bytes=27472 << 20,
            mig=False,
            persistence=True,
            ecc_errors=0,
            numa_node=1,
        ),
    )


def test_cards_without_their_driver_are_counted_and_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("orchestrator.adapters.host.commands.WSL_TOOLS", str(tmp_path))
    assert read_cards(tmp_path).gpus == ()
    device = "sys/bus/pci/devices/0000:01:00.0"
    a_tree(tmp_path, {f"{device}/vendor": "0x10de\n", f"{device}/class": "0x030000\n"})
    assert read_cards(tmp_path).gpus == (Gpu(index=0),)
    a_tree(tmp_path, {"dev/dxg": ""})
    assert read_cards(tmp_path).gpus is None  # Windows does not say how many it lends


def test_a_driver_that_can_not_serve_a_card_is_not_taken_for_a_host_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_tool(tmp_path / "bin", "nvidia-smi", 'echo "$SAID"; exit 6')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.setenv("SAID", "No devices were found")
    root = tmp_path / "root"
    assert read_cards(root).gpus == ()
    device = "sys/bus/pci/devices/0000:01:00.0"
    a_tree(root, {f"{device}/vendor": "0x10de\n", f"{device}/class": "0x030000\n"})
    found = read_cards(root).gpus
    assert found == (Gpu(index=0),)
    assert gpu_driver(HostFacts(gpus=found)).severity is Severity.WARN
    # A card that is lost is told as that; another driver would not bring it back.
    lost = "Unable to determine the device handle for GPU0000:01:00.0: Unknown Error"
    monkeypatch.setenv("SAID", f"{lost}\nNo devices were found")
    assert (read_cards(root).gpus, read_cards(root).lost) == ((), 1)


def test_docker_that_is_not_here_is_told_from_docker_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (read_docker(tmp_path).answers, read_docker(tmp_path).version) == (False, None)
    script = """
case "$1" in
  compose) echo "Docker Compose version v2.24.5";;
  buildx) echo "docker: 'buildx' is not a docker command." >&2; exit 1;;
  version) echo '{"Client":{"Version":"28.2.2"},"Server":null}'; exit 1;;
  info) echo '{"ServerVersion":"","ServerErrors":["permission denied"]}'; exit 1;;
esac"""
    a_tool(tmp_path / "bin", "docker", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    docker = read_docker(tmp_path)
    assert (docker.answers, docker.version, docker.compose_version) == (False, "28.2.2", "2.24.5")
    assert docker.buildx_version is None
    assert docker.nvidia_runtime is None


def test_a_description_of_the_cards_is_nothing_to_a_daemon_that_does_not_look_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
[ "$1" = info ] && echo '{"ServerVersion":"24.0","Runtimes":{"runc":{}}}'
[ "$1" = version ] && echo '{"Server":{"Version":"24.0"}}'"""
    a_tool(tmp_path / "bin", "docker", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    root = a_tree(tmp_path, {"etc/cdi/nvidia.yaml": "kind: nvidia.com/gpu\n"})
    assert read_docker(root).cdi is False


def test_cdi_takes_a_daemon_that_looks_for_it_and_a_description_of_the_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
[ "$1" = info ] && echo '{"ServerVersion":"27.0","Runtimes":{"runc":{}},"CDISpecDirs":["/etc/cdi"]}'
[ "$1" = version ] && echo '{"Server":{"Version":"27.0"}}'"""
    a_tool(tmp_path / "bin", "docker", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert read_docker(tmp_path).cdi is False
    a_tree(tmp_path, {"etc/cdi/nvidia.yaml": "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n"})
    docker = read_docker(tmp_path)
    assert (docker.cdi, docker.nvidia_runtime) == (True, False)

"""A host known by its outputs: what is unknown of it names the file that would tell."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from judged import by_name, shipped
from orchestrator.cli import main
from orchestrator.core.advice import advise
from orchestrator.core.checks.captured import FILES, naming_files
from orchestrator.core.checks.finding import Finding, Severity
from orchestrator.core.deriving import derived
from orchestrator.core.facts import HostFacts
from orchestrator.core.probes.captures import facts_of
from orchestrator.core.probes.commands import COMMANDS
from orchestrator.place import settings_without_profile
from pastes import TWO_SOCKETS
from wire import Lock

ROOT = Path(__file__).resolve().parents[2]
# What each command prints on one host of two nodes, shortened to the lines that count.
ANSWERS = TWO_SOCKETS | {
    "df.txt": "/dev/nvme1n1 ext4 3.5T 1.1T 2.3T 33% /data\n",
    "uname.txt": "Linux gpu01 6.8.0-71-generic #71-Ubuntu SMP x86_64 x86_64 x86_64 GNU/Linux\n",
    "cpupower.txt": (
        "  hardware limits: 800 MHz - 3.40 GHz\n"
        "  current policy: frequency should be within 800 MHz and 3.40 GHz.\n"
        '                  The governor "performance" may decide which speed to use\n'
    ),
    "cpu.max.txt": "max 100000\n",
    "memory.max.txt": "max\n",
    "node-meminfo.txt": (
        "Node 0 MemTotal:       246784000 kB\nNode 0 MemFree:        243712000 kB\n"
        "Node 1 MemTotal:       247705600 kB\nNode 1 MemFree:        244736000 kB\n"
    ),
    "governor.txt": "performance\nperformance\n",
    "meminfo.txt": (
        "MemTotal:       494927872 kB\nMemAvailable:   486539264 kB\nSwapTotal:  0 kB\n"
        "SwapFree:   0 kB\nHugetlb:    0 kB\n"
    ),
    "thp.txt": "always [madvise] never\n",
    "buddyinfo.txt": "Node 0, zone   Normal  1  1  1  1  1  1  1  1  1  1  1\n",
    "numa-balancing.txt": "0\n",
    "nvidia-smi-query.txt": (
        "name, memory.total [MiB], memory.free [MiB], compute_cap\n"
        "NVIDIA GeForce RTX 4090, 24564 MiB, 24080 MiB, 8.9\n"
    ),
    "docker-info.txt": json.dumps(
        {
            "ServerVersion": "28.3.3",
            "CgroupDriver": "systemd",
            "Runtimes": {"runc": {}, "nvidia": {}},
            "SecurityOptions": ["name=seccomp,profile=builtin"],
            "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}],
            "ClientInfo": {
                "Plugins": [
                    {"Name": "compose", "Version": "2.39.1"},
                    {"Name": "buildx", "Version": "0.26.1"},
                ]
            },
        }
    )
    + "\n",
}


def found_by(facts: HostFacts) -> dict[str, Finding]:
    profile = shipped("deepseek-r1-q4km")
    advice = advise(profile, (), facts, derived(profile.model), profile.model.total_bytes)
    return by_name(advice.findings)


def test_the_file_that_a_check_asks_for_answers_it() -> None:
    found = found_by(facts_of(ANSWERS))
    assert set(FILES) <= set(found)
    assert {check for check in FILES if found[check].severity is Severity.UNKNOWN} == set()


def test_the_files_asked_for_are_those_that_are_read() -> None:
    assert set(FILES.values()) <= set(COMMANDS)
    # Each by itself, beside the CPUs that all need.
    beside = {"lscpu.txt": ANSWERS["lscpu.txt"]}
    for check, name in FILES.items():
        alone = found_by(facts_of(beside | {f"{name}.txt": ANSWERS[f"{name}.txt"]}))
        assert alone[check].severity is not Severity.UNKNOWN, check


def test_only_what_is_unknown_and_can_be_captured_names_a_file() -> None:
    before = found_by(HostFacts())
    after = by_name(naming_files(before.values()))
    assert after["memory"].next_step.en == (
        "put what this prints there into the folder's meminfo.txt: cat /proc/meminfo"
    )
    assert after["ports"] == before["ports"]
    for check, found in after.items():
        assert replace(found, next_step=before[check].next_step) == before[check]
    fine = found_by(facts_of(ANSWERS))
    assert by_name(naming_files(fine.values()))["memory"] == fine["memory"]


@pytest.fixture
def pastes(tmp_path: Path) -> Path:
    folder = tmp_path / "pastes"
    folder.mkdir()
    for name, text in TWO_SOCKETS.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_doctor_names_the_file_where_a_folder_of_outputs_is_judged(
    pastes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ["--only", "memory-nodes", "--only", "ports", "--profile", "deepseek-r1-q4km"]
    main(["doctor", "--facts", str(pastes), *only])
    told = " ".join(capsys.readouterr().out.split())
    assert "into the folder's node-meminfo.txt: cat /sys/devices/system/node/node*/meminfo" in told
    assert "find out with: ss -ltnp" in told
    saved = tmp_path / "facts.json"
    saved.write_text(facts_of(TWO_SOCKETS).model_dump_json(), encoding="utf-8")
    main(["doctor", "--facts", str(saved), *only])
    assert "find out with: numactl --hardware" in " ".join(capsys.readouterr().out.split())


def test_what_serves_here_says_nothing_of_another_host(
    pastes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "stack.env").write_text("STACK_PROFILE='demo'\n", encoding="utf-8")
    main(["doctor", "--facts", str(pastes), "--state-dir", str(state), "--json"])
    assert json.loads(capsys.readouterr().out)["profile"] != "demo"


def test_weights_that_are_here_are_not_on_another_host(
    pastes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = Lock.model_validate_json((ROOT / "configs/locks/smollm2-135m.json").read_bytes())
    weights = tmp_path / "weights"
    for file in lock.files:
        path = weights / lock.folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as sparse:
            sparse.truncate(file.size_bytes)
    total = sum(file.size_bytes for file in lock.files)
    typed = ["--profile", "smollm2-135m", "--weights-dir", str(weights), "--facts", str(pastes)]
    main(["plan", *typed, "--json"])
    (disk, *_) = json.loads(capsys.readouterr().out)["budget"]
    fetched = [term["size_bytes"] for term in disk["terms"] if term["name"].startswith("weights")]
    assert fetched == [total]
    main(["doctor", *typed, "--only", "disk", "--json"])
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert check["needed"] == f"{disk['need_bytes'] / 1e9:.1f} GB"
    assert settings_without_profile(ROOT, {"weights_dir": str(weights)})[2].weights == weights

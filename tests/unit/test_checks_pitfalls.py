"""What people ran into, each found by the check that is meant for it."""

from typing import Any

import pytest

import hosts
from hosts import GIB, MIB
from judged import (
    changed,
    judged,
    of_host,
    placed,
    shipped,
    taking,
)
from orchestrator.core.checks import host_findings, profile_findings
from orchestrator.core.checks.finding import Severity
from orchestrator.core.facts import Docker, Gpu, HostFacts, NumaNode, Reach
from orchestrator.core.settings import Settings

PITFALLS = [
    ("governor", changed("cpu", governor="powersave"), "cpupower frequency-set -g performance"),
    ("governor", changed("cpu", governor="schedutil"), "cpupower frequency-set -g performance"),
    ("frequency", changed("cpu", limit_mhz=2100.0), "cpupower frequency-set -u 3400MHz"),
    ("numa-balancing", changed("", numa_balancing=True), "sysctl -w kernel.numa_balancing=0"),
    ("swap", changed("memory", swap_total_bytes=8 * GIB, swap_free_bytes=8 * GIB), "swapoff -a"),
    (
        "thp",
        changed("memory", thp="never"),
        "echo always > /sys/kernel/mm/transparent_hugepage/enabled",
    ),
    (
        "fragmentation",
        changed("memory", largest_free_block_bytes=1 * MIB),
        "echo 1 > /proc/sys/vm/compact_memory",
    ),
    (
        "hugepages",
        changed("memory", hugepages_bytes=64 * GIB),
        "for f in /sys/kernel/mm/hugepages/*/nr_hugepages; do echo 0 > $f; done",
    ),
    ("cpu-limit", changed("limits", cpus=8.0), "export ORCH_THREADS=8"),
    ("cgroup-limit", changed("limits", memory_bytes=64 * GIB), ""),
    ("container", changed("limits", container="lxc"), ""),
    ("disk-kind", changed("disk", kind="hdd"), ""),
    ("disk-kind", changed("disk", kind="network"), ""),
    ("disk-kind", changed("disk", kind="memory"), ""),
    ("clock", changed("reach", clock_ahead_s=-86400.0), "timedatectl set-ntp true"),
    ("network", changed("", reach=Reach(huggingface=False, modelscope=False)), ""),
    ("image-registry", changed("reach", image_registry=False), "./install.sh --no-up"),
    ("sys-nice", changed("docker", rootless=True), "docker context use default"),
    (
        "gpu-after-reload",
        changed("docker", cdi=False),
        "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    ),
    (
        "gpu-driver",
        changed("", gpus=(Gpu(index=0),), driver_version=None, driver_cuda=None),
        "ubuntu-drivers install || apt-get install -y nvidia-driver",
    ),
    ("mig", hosts.mig_a30(), "nvidia-smi -i 0 -mig 0"),
    ("gpu-generation", hosts.old_driver_v100(), ""),
    ("memory-only-nodes", hosts.aarch64_grace(), ""),
    ("wsl", hosts.wsl2_4090(), ""),
]


@pytest.mark.parametrize(("name", "facts", "fix"), PITFALLS)
def test_a_pitfall_of_the_host_is_warned_of_with_the_command_that_fixes_it(
    name: str, facts: HostFacts, fix: str
) -> None:
    finding = of_host(facts)[name]
    assert finding.severity is Severity.WARN
    assert finding.fix == fix
    assert finding.fix or finding.next_step.en


def test_a_tuned_host_has_nothing_to_warn_of() -> None:
    seen = Reach(image_registry=True, huggingface=False, modelscope=True, clock_ahead_s=2.0)
    found = of_host(changed("", reach=seen))
    assert {name: one.severity for name, one in found.items() if one.severity != "ok"} == {}


def test_undo_brings_back_what_was_found() -> None:
    saving = of_host(changed("cpu", governor="schedutil", limit_mhz=2100.0))
    assert saving["governor"].undo == "cpupower frequency-set -g schedutil"
    assert saving["frequency"].undo == "cpupower frequency-set -u 2100MHz"
    # 64 GiB of 2 MiB pages: 32,768.
    reserved = of_host(changed("memory", hugepages_bytes=64 * GIB))["hugepages"]
    assert reserved.undo == "sysctl -w vm.nr_hugepages=32768"
    assert of_host(changed("memory", thp="never"))["thp"].undo.startswith("echo never")
    assert of_host(changed("", numa_balancing=True))["numa-balancing"].undo.endswith("=1")
    off = changed("", gpus=(Gpu(index=0, persistence=False, memory_bytes=24 * GIB),))
    assert of_host(off)["persistence"].severity is Severity.WARN
    assert of_host(off)["persistence"].fix == "nvidia-smi -pm 1"
    assert of_host(off)["persistence"].undo == "nvidia-smi -pm 0"


def test_swap_that_ram_has_no_room_for_is_not_to_be_switched_off() -> None:
    # 12 GiB in use, 8 GiB available.
    full: dict[str, Any] = {
        "swap_total_bytes": 16 * GIB,
        "swap_free_bytes": 4 * GIB,
        "available_bytes": 8 * GIB,
    }
    swap = of_host(changed("memory", **full))["swap"]
    assert swap.fix == ""
    assert "12.9 GB of it is in use" in swap.next_step.en


def test_one_node_has_no_pages_to_balance_and_no_use_for_sys_nice() -> None:
    single = changed("", hosts.no_amx_epyc(), numa_balancing=True)
    assert of_host(single)["numa-balancing"].severity is Severity.OK
    rootless = changed("docker", hosts.no_amx_epyc(), rootless=True)
    assert of_host(rootless)["sys-nice"].severity is Severity.OK


def test_sockets_with_unequal_memory_are_warned_of() -> None:
    # EPYC 7401 of the kernel mail: of eight nodes two have memory.
    sizes = (0, 31584, 0, 0, 0, 32214, 0, 0)
    nodes = tuple(NumaNode(id=n, memory_bytes=mib * MIB, cpus=(n,)) for n, mib in enumerate(sizes))
    finding = of_host(changed("", nodes=nodes))["node-balance"]
    assert finding.severity is Severity.WARN
    assert "empty nodes: 6 of 8" in finding.next_step.en


@pytest.mark.parametrize("system", ["Windows 11 Pro", "FreeBSD 14.1"])
def test_a_system_that_is_not_linux_is_refused(system: str) -> None:
    finding = of_host(changed("", system=system))["operating-system"]
    assert finding.severity is Severity.BLOCK
    assert finding.of_host


def test_a_rented_container_without_docker_is_told_what_to_rent() -> None:
    finding = of_host(hosts.container_64gb_limit_on_512gb())["container"]
    assert finding.severity is Severity.BLOCK
    assert finding.of_host
    for said in ("virtual machine or bare metal", "402 GB", "480 GB", "14 GB"):
        assert said in finding.next_step.en
    for said in ("虚拟机或裸金属", "402 GB", "480 GB", "14 GB"):
        assert said in finding.next_step.zh


@pytest.mark.parametrize(
    ("docker", "uid", "fix"),
    [
        (Docker(answers=False), 1000, "./install.sh --no-up"),
        (Docker(answers=False, version="28.3.3"), 0, "systemctl start docker"),
        (
            Docker(answers=False, version="28.3.3"),
            1000,
            'systemctl start docker && usermod -aG docker "$(id -un 1000)"',
        ),
    ],
)
def test_a_host_without_a_docker_that_answers_is_told_how_to_get_one(
    docker: Docker, uid: int, fix: str
) -> None:
    finding = of_host(changed("", docker=docker, uid=uid))["docker"]
    assert finding.severity is Severity.BLOCK
    assert finding.fix == fix


def test_compose_1_is_refused() -> None:
    assert (
        of_host(changed("docker", compose_version="1.29.2"))["compose"].severity is Severity.BLOCK
    )
    assert of_host(changed("docker", compose_version="v2.39.1"))["compose"].severity is Severity.OK


def test_a_taken_port_is_moved_to_one_that_is_free_and_not_our_own() -> None:
    # 8080 is taken, 8081 too, and 8082 is to be the chat page's.
    facts = changed("", busy_ports=frozenset({8080, 8081}))
    finding = of_host(facts, Settings(gateway_port=8080, webui_port=8082))["ports"]
    assert finding.severity is Severity.BLOCK
    assert finding.fix == "export ORCH_GATEWAY_PORT=8083"
    assert finding.undo == "unset ORCH_GATEWAY_PORT"


def test_what_a_host_did_not_say_is_unknown_with_a_way_to_find_out_and_never_refused() -> None:
    silent = HostFacts()
    where = placed(silent, (0,))
    budget = taking(silent, where, fetch_gb=404.4, ram_gb=395)
    found = judged(shipped("deepseek-r1-q4km"), silent, where, budget)
    unknown = {name: one for name, one in found.items() if one.severity is Severity.UNKNOWN}
    # Every check of a fact; the rest look at the plan or at the profile alone.
    assert set(found) - set(unknown) == {
        "engine-arguments",
        "context",
        "memory-limit",
        "engine-image",
        "also-needs",
        "engine-reads",
        "inference-cpus",
        "profile-status",
    }
    assert all(one.next_step.en.startswith("find out with: ") for one in unknown.values())
    blocked = {name for name, one in found.items() if one.severity is Severity.BLOCK}
    assert blocked == set()


def test_every_check_has_its_own_name() -> None:
    facts = hosts.h200()
    where = placed(facts, (0,))
    budget = taking(facts, where, fetch_gb=0, ram_gb=1)
    settings = Settings()
    names = [
        finding.check
        for finding in (
            *host_findings(facts, settings),
            *profile_findings(shipped("demo"), settings, facts, where, budget, ()),
        )
    ]
    assert len(names) == len(set(names)) == 56


@pytest.mark.parametrize(
    ("limit", "severity", "found"),
    [
        (64 << 10, Severity.OK, "64 KiB"),
        (-1, Severity.OK, "unlimited"),
        (None, Severity.UNKNOWN, "?"),
    ],
)
def test_what_may_be_locked_in_memory_never_stands_in_the_way(
    limit: int | None, severity: Severity, found: str
) -> None:
    finding = of_host(changed("limits", memlock_bytes=limit))["memlock"]
    assert (finding.severity, finding.found) == (severity, found)

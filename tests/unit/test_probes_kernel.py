"""What the kernel, its files and its virtual machine say of processors, limits and switches."""

import pytest

from orchestrator.core.facts import Cpu, HostFacts, Limits, Memory
from orchestrator.core.probes import cgroup, kernel
from orchestrator.core.probes.captures import facts_of


def cpu_block(processor: int, socket: int, core: int, siblings: int, cores: int) -> str:
    return (
        f"processor\t: {processor}\nmodel name\t: X\nphysical id\t: {socket}\n"
        f"siblings\t: {siblings}\ncore id\t\t: {core}\ncpu cores\t: {cores}\n"
        f"flags\t\t: fpu avx2\nbugs\t\t:\n\n"
    )


def test_cpuinfo_of_all_cpus_is_counted() -> None:
    text = "".join(cpu_block(cpu, cpu // 4, cpu % 2, 4, 2) for cpu in range(8))
    cpu = kernel.parse_cpuinfo(text)
    assert (cpu.sockets, cpu.physical_cores, cpu.threads, cpu.threads_per_core) == (2, 4, 8, 2)
    assert (cpu.avx2, cpu.amx) == (True, False)


def test_cpuinfo_of_one_cpu_that_is_not_the_last_says_nothing_of_the_rest() -> None:
    cpu = kernel.parse_cpuinfo(cpu_block(3, 1, 1, 4, 2))
    assert (cpu.sockets, cpu.physical_cores, cpu.threads) == (None, None, None)
    assert cpu.avx2 is True


def test_cpupower_mixes_its_units() -> None:
    text = (
        "  hardware limits: 800 MHz - 3.40 GHz\n"
        "  current policy: frequency should be within 800 MHz and 2000 MHz.\n"
        '                  The governor "powersave" may decide which speed to use\n'
    )
    assert kernel.parse_cpupower(text) == Cpu(governor="powersave", max_mhz=3400, limit_mhz=2000)


def test_governors_that_differ_are_all_named() -> None:
    assert kernel.one_governor(["performance\n", "powersave\n", "performance"]) == (
        "performance,powersave"
    )
    assert kernel.one_governor([""]) is None


def test_the_name_of_a_host_is_not_kept() -> None:
    text = "Linux secret-host 6.8.0-45-generic #45 SMP x86_64 x86_64 x86_64 GNU/Linux\n"
    facts = facts_of({"uname.txt": text})
    assert (facts.system, facts.kernel) == ("Linux", "6.8.0-45-generic")
    assert facts.cpu.architecture == "x86_64"
    assert "secret" not in facts.model_dump_json()


@pytest.mark.parametrize(
    ("release", "flags", "makers", "kind"),
    [
        ("5.15.1-microsoft-standard-WSL2", None, [], "wsl"),
        ("6.1.0", frozenset({"fpu"}), ["Amazon EC2", "m5.metal"], ""),  # a rented host, bare
        ("6.1.0", frozenset({"hypervisor"}), ["Amazon EC2", "m5.large"], "amazon"),
        ("6.1.0", frozenset({"hypervisor"}), ["QEMU", "Standard PC"], "kvm"),
        ("6.1.0", frozenset({"hypervisor"}), ["", ""], "vm"),
        ("6.1.0", None, ["Supermicro", "X13"], ""),
    ],
)
def test_a_virtual_machine_is_told_by_the_cpu_and_named_by_the_firmware(
    release: str, flags: frozenset[str] | None, makers: list[str], kind: str
) -> None:
    assert kernel.hypervisor(release, Cpu(flags=flags), makers, "") == kind


def test_switches_above_one_are_on_too() -> None:
    assert [kernel.parse_switch(text) for text in ("0\n", "1\n", "2\n", "", "x")] == [
        *(False, True, True),
        *(None, None),
    ]


def test_a_group_without_a_limit_limits_nothing() -> None:
    free = {"memory.max": "max\n", "memory.current": "5\n", "cpu.max": "max 100000\n"}
    assert cgroup.parse_groups([free]) == Limits(unlimited=frozenset({"memory", "cpus"}))
    legacy = {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000"}
    assert cgroup.parse_groups([legacy]) == Limits(unlimited=frozenset({"cpus"}))
    assert cgroup.parse_groups([free, {"memory.max": "5\n"}]).unlimited == {"cpus"}


def test_a_limit_whose_use_is_unknown_is_still_a_limit() -> None:
    limits = cgroup.parse_groups([{"memory.max": "1000\n"}])
    facts = HostFacts(memory=Memory(available_bytes=5000), limits=limits)
    assert (limits.memory_bytes, limits.memory_room_bytes) == (1000, None)
    assert facts.usable_memory_bytes == 1000


def test_a_pasted_group_and_process_status_are_limits() -> None:
    facts = facts_of(
        {
            "memory.max": "1000\n",
            "memory.current": "400\n",
            "status.txt": "Name:\tx\nCpus_allowed_list:\t0-1\n",
        }
    )
    assert facts.limits == Limits(
        cgroup_version=2, memory_bytes=1000, memory_room_bytes=600, cpuset=(0, 1)
    )

"""What nobody looked at is unknown: neither fine nor free, and never somebody else's."""

import pytest

import hosts
from hosts import GIB
from judged import by_name, of_host, shipped
from orchestrator.core.advice import Advice, advise
from orchestrator.core.checks.finding import Finding, Severity
from orchestrator.core.deriving import derived
from orchestrator.core.facts import Cpu, Docker, Gpu, HostFacts, Limits, NumaNode
from orchestrator.core.placement import MemoryPolicy
from orchestrator.core.probes.captures import facts_of
from orchestrator.core.profile import FolderSource, Profile
from pastes import TWO_SOCKETS

# What is about the profile, its files and this release, and asks nothing of a host.
OF_NO_HOST = {"engine-image", "also-needs", "engine-reads", "profile-status"}
# Computed from what the model takes, never from what the host has.
OF_THE_PLAN = {"memory-limit", "engine-arguments", "context", "inference-cpus"}
# Passed by a profile for the CPU on any host.
OF_CARDS = {
    *("gpu-count", "toolkit", "vram", "long-output", "several-gpus", "compute-capability"),
    "driver",
}


def advice_on(facts: HostFacts, name: str = "deepseek-r1-q4km") -> Advice:
    profile = shipped(name)
    return advise(profile, (), facts, derived(profile.model), profile.model.total_bytes)


def found_on(facts: HostFacts, name: str = "deepseek-r1-q4km") -> dict[str, Finding]:
    return by_name(advice_on(facts, name).findings)


def needless(profile: Profile) -> set[str]:
    """Checks of what this profile does not need."""
    own_files = all(isinstance(source, FolderSource) for source in profile.sources)
    short = profile.needs.vram is None or profile.needs.vram.recommended_bytes is None
    return (
        (OF_CARDS if profile.needs.gpus == 0 else set())
        | ({"sources"} if own_files else set())
        | ({"long-output"} if short else set())
    )


@pytest.mark.parametrize(
    "name", ["deepseek-r1-q4km", "deepseek-r1-amxint4", "qwen3-30b-a3b-bf16", "demo"]
)
def test_of_a_host_that_nobody_looked_at_nothing_is_fine_and_nothing_is_wrong(name: str) -> None:
    findings = found_on(HostFacts(), name)
    assert len(findings) == 56
    free = OF_NO_HOST | OF_THE_PLAN | needless(shipped(name))
    unasked = {check: one for check, one in findings.items() if check not in free}
    assert {check: one.severity.value for check, one in unasked.items()} == dict.fromkeys(
        unasked, "unknown"
    )


def test_nodes_whose_memory_is_unknown_are_not_each_given_the_whole_hosts() -> None:
    advice = advice_on(facts_of(TWO_SOCKETS))
    assert [(share.where, share.have_bytes) for share in advice.budget.ram] == [
        ("RAM node 0", None),
        ("RAM node 1", None),
    ]
    assert "? on node 0: whether it has room is not known" in advice.placement.reasons["policy"]
    found = by_name(advice.findings)
    assert found["memory-nodes"].severity is Severity.UNKNOWN
    # 464 GiB = 498.2 GB in all: the host as a whole does have room.
    assert (found["memory"].severity, found["memory"].found) == (Severity.OK, "498.2 GB")


def test_a_nodes_size_alone_gives_it_its_part_of_what_is_available() -> None:
    host = hosts.rtx4090_480gb_two_sockets()
    nodes = tuple(node.model_copy(update={"memory_free_bytes": None}) for node in host.nodes or ())
    advice = advice_on(host.model_copy(update={"nodes": nodes}))
    # 236 of 472 GiB on each, 466 GiB available: 233 GiB.
    assert [share.have_bytes for share in advice.budget.ram] == [233 * GIB] * 2


def test_nodes_that_are_only_counted_are_no_single_node() -> None:
    found = found_on(HostFacts(counted_nodes=2))
    assert found["memory-nodes"].severity is Severity.UNKNOWN
    assert found["memory-policy"].severity is Severity.UNKNOWN
    single = found_on(HostFacts(counted_nodes=1))
    assert (single["memory-nodes"].severity, single["memory-nodes"].found) == (
        Severity.OK,
        "1 node",
    )
    assert single["memory-policy"].severity is Severity.OK


def test_a_policy_that_leaves_pages_to_the_kernel_is_judged_by_the_whole_host() -> None:
    profile = shipped("deepseek-r1-q4km")
    layer = profile.layer()
    local = type(layer)(values={"memory_policy": "local"}, origins={"memory_policy": "a test"})
    host = hosts.rtx4090_480gb_two_sockets()
    advice = advise(profile, (local,), host, derived(profile.model), profile.model.total_bytes)
    assert advice.placement.policy is MemoryPolicy.LOCAL
    nodes = by_name(advice.findings)["memory-nodes"]
    assert (nodes.severity, nodes.found) == (Severity.OK, "2 nodes")


def test_ports_that_nobody_tried_are_unknown() -> None:
    assert facts_of(TWO_SOCKETS).busy_ports is None
    ports = of_host(facts_of(TWO_SOCKETS))["ports"]
    assert (ports.severity, ports.next_step.en) == (Severity.UNKNOWN, "find out with: ss -ltnp")
    assert of_host(HostFacts(busy_ports=frozenset()))["ports"].severity is Severity.OK


def test_the_version_of_the_groups_does_not_say_that_they_limit_nothing() -> None:
    told = facts_of(TWO_SOCKETS | {"docker-info.txt": '{"CgroupVersion": "2"}\n'})
    assert told.limits.cgroup_version == 2
    for check in ("cgroup-limit", "cpu-limit"):
        assert of_host(told)[check].severity is Severity.UNKNOWN
    one = of_host(facts_of(TWO_SOCKETS | {"memory.max": "max\n"}))
    assert (one["cgroup-limit"].severity, one["cpu-limit"].severity) == ("ok", "unknown")
    both = of_host(facts_of(TWO_SOCKETS | {"memory.max": "max\n", "cpu.max": "max 100000\n"}))
    assert (both["cgroup-limit"].severity, both["cpu-limit"].severity) == ("ok", "ok")
    legacy = {"memory.limit_in_bytes": "9223372036854771712\n", "cpu.cfs_quota_us": "-1\n"}
    old = of_host(facts_of(TWO_SOCKETS | legacy))
    assert (old["cgroup-limit"].severity, old["cpu-limit"].severity) == ("ok", "ok")
    damaged = of_host(facts_of(TWO_SOCKETS | {"memory.max": "?\n", "cpu.max": "No such file\n"}))
    assert (damaged["cgroup-limit"].severity, damaged["cpu-limit"].severity) == (
        "unknown",
        "unknown",
    )


def test_a_limit_counts_whatever_the_version_of_the_groups() -> None:
    limits = Limits(memory_bytes=64 * GIB, cpus=4.0)
    found = of_host(HostFacts(limits=limits, cpu=Cpu(physical_cores=8)))
    assert (found["cgroup-limit"].severity, found["cpu-limit"].severity) == ("warn", "warn")


def test_a_list_of_flags_that_is_cut_lacks_nothing_for_sure() -> None:
    cut = Cpu(architecture="x86_64", flags=frozenset({"avx2", "avx512f"}), flags_complete=False)
    amx = found_on(HostFacts(cpu=cut), "deepseek-r1-amxint4")["cpu-instructions"]
    assert amx.severity is Severity.UNKNOWN
    whole = cut.model_copy(update={"flags_complete": True})
    amx = found_on(HostFacts(cpu=whole), "deepseek-r1-amxint4")["cpu-instructions"]
    assert amx.severity is Severity.BLOCK


def test_microsofts_hypervisor_may_be_windows_own_linux_or_a_virtual_machine() -> None:
    inside = HostFacts(limits=Limits(virtual="microsoft"))
    assert of_host(inside)["wsl"].severity is Severity.UNKNOWN
    azure = inside.model_copy(update={"kernel": "6.8.0-1017-azure"})
    assert of_host(azure)["wsl"].severity is Severity.OK


def test_whether_slices_cut_a_card_that_can_be_cut_is_unknown_until_it_says_so() -> None:
    listed = facts_of({"nvidia-smi-L.txt": "GPU 0: NVIDIA H200 (UUID: GPU-0)\n"})
    assert of_host(listed)["mig"].severity is Severity.UNKNOWN
    gaming = facts_of({"nvidia-smi-L.txt": "GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-0)\n"})
    assert of_host(gaming)["mig"].severity is Severity.OK
    unnamed = HostFacts(gpus=(Gpu(index=0),))
    assert of_host(unnamed)["mig"].severity is Severity.UNKNOWN


def test_one_node_is_known_to_be_one_however_it_is_told() -> None:
    rootless = Docker(rootless=True)
    by_list = HostFacts(nodes=(NumaNode(id=0),), docker=rootless)
    assert of_host(by_list)["sys-nice"].severity is Severity.OK

"""What people ran into, each found by the check that is meant for it."""

from typing import Any

import pytest

import hosts
from hosts import GIB, MIB
from judged import GB, by_name, judged, of_host, placed, shipped, taking
from orchestrator.core.checks import cards, host_findings, profile_findings, speed
from orchestrator.core.checks.finding import Finding, Severity
from orchestrator.core.facts import Docker, Gpu, HostFacts, NumaNode, Reach
from orchestrator.core.profile import Profile
from orchestrator.core.settings import Settings


def changed(part: str, facts: HostFacts | None = None, **changes: Any) -> HostFacts:
    """The box of the README with one thing amiss. `part`: "" for a fact of the host itself."""
    facts = facts or hosts.rtx4090_480gb_two_sockets()
    if not part:
        return facts.model_copy(update=changes)
    return facts.model_copy(update={part: getattr(facts, part).model_copy(update=changes)})


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


def flagship(facts: HostFacts, **placement: Any) -> dict[str, Finding]:
    """On both nodes, with 404.4 GB to fetch, 395 GB of RAM and 14 GB of VRAM to take."""
    where = placed(facts, (0, 1), **placement)
    budget = taking(facts, where, fetch_gb=404.4, ram_gb=395, vram_gb=14)
    return judged(shipped("deepseek-r1-q4km"), facts, where, budget)


def test_a_full_disk_blocks_with_needed_and_free() -> None:
    finding = flagship(changed("disk", free_bytes=212 * GB))["disk"]
    assert finding.severity is Severity.BLOCK
    # 404.4 GB of weights and 1 GB left free; 405.4 - 212.0 = 193.4.
    assert finding.needed == "405.4 GB"
    assert finding.found == "212.0 GB on /data/weights"
    assert "free 193.4 GB" in finding.next_step.en


def test_ram_that_swap_would_have_to_make_up_for_is_refused() -> None:
    # 384 GiB = 412.3 GB available, and a terabyte of swap: 395 GB fit, with less than 480 to spare.
    roomy: dict[str, Any] = {"available_bytes": 384 * GIB, "swap_total_bytes": 1000 * GIB}
    assert flagship(changed("memory", **roomy))["memory"].severity is Severity.WARN
    # 256 GiB = 274.9 GB: swap does not count.
    tight: dict[str, Any] = {"available_bytes": 256 * GIB, "swap_total_bytes": 1000 * GIB}
    finding = flagship(changed("memory", **tight))["memory"]
    assert finding.severity is Severity.BLOCK
    # 395.0 - 274.9 = 120.1, and the host has 472 GiB = 506.8 GB in all: others hold it.
    assert "506.8 GB in all" in finding.next_step.en
    assert "120.1 GB more" in finding.next_step.en


def test_ram_enough_in_total_and_short_on_one_node_is_refused() -> None:
    facts = hosts.rtx4090_480gb_two_sockets()
    where = placed(facts, (0,))
    budget = taking(facts, where, fetch_gb=0, ram_gb=391)
    found = judged(shipped("deepseek-r1-q4km"), facts, where, budget)
    # 500.4 GB are free in all, 233 GiB = 250.2 GB of them on the node.
    assert found["memory"].severity is Severity.OK
    assert found["memory-nodes"].severity is Severity.BLOCK
    assert found["memory-nodes"].found == "node 0: 250.2 GB"
    assert found["memory-nodes"].needed == "node 0: 391.0 GB"


def test_a_memory_limit_below_what_the_engine_takes_is_refused() -> None:
    low = flagship(hosts.rtx4090_480gb_two_sockets(), memory_limit_bytes=300 * GB)["memory-limit"]
    assert low.severity is Severity.BLOCK
    assert (low.found, low.needed) == ("300.0 GB", "395.0 GB")
    assert flagship(hosts.rtx4090_480gb_two_sockets())["memory-limit"].severity is Severity.OK


def test_a_limit_that_the_operator_set_too_low_is_to_be_taken_back() -> None:
    facts = hosts.rtx4090_480gb_two_sockets()
    where = placed(facts, (0, 1))
    budget = taking(facts, where, fetch_gb=0, ram_gb=395)
    settings = Settings(inference_memory_bytes=100 * GB)
    found = by_name(
        profile_findings(shipped("deepseek-r1-q4km"), settings, facts, where, budget, ())
    )
    assert found["memory-limit"].severity is Severity.BLOCK
    assert found["memory-limit"].fix == "unset ORCH_INFERENCE_MEMORY_BYTES"
    assert found["memory-limit"].undo == "export ORCH_INFERENCE_MEMORY_BYTES=100000000000"


def test_vram_for_short_replies_only_is_warned_of() -> None:
    # An RTX A4000: 16,376 MiB, of them 16,000 = 16.8 GB free: over 14, under 20.
    card = Gpu(
        index=0,
        compute_capability=(8, 6),
        memory_bytes=16376 * MIB,
        memory_free_bytes=16000 * MIB,
    )
    found = flagship(changed("", gpus=(card,)))
    assert found["vram"].severity is Severity.OK
    assert found["long-output"].severity is Severity.WARN
    assert found["long-output"].found == "16.8 GB"
    assert found["long-output"].fix == "export ORCH_MAX_TOKENS=2048"


def test_several_cards_are_not_said_to_add_up() -> None:
    finding = flagship(changed("", gpus=hosts.two_cards_24gb().gpus))["several-gpus"]
    assert finding.severity is Severity.WARN
    assert "not more tokens/s" in finding.why.en
    assert finding.fix == "export ORCH_GPUS=0"


@pytest.mark.parametrize(("gpus", "found"), [("0", "1 GPU"), ("0,0", "1 GPU"), ("8,9", "0 GPUs")])
def test_cards_that_are_not_there_or_not_chosen_do_not_count(gpus: str, found: str) -> None:
    facts = hosts.two_cards_24gb()
    two = shipped("deepseek-r1-q4km-2gpu")
    where = placed(facts, [0])
    finding = cards.gpu_count(two, Settings(gpus=gpus), where, facts)
    assert finding.severity is Severity.BLOCK
    assert finding.found == f"{found} (gpus = {gpus})"
    assert finding.fix == "unset ORCH_GPUS"
    assert cards.gpu_count(two, Settings(gpus="0,1"), where, facts).severity is Severity.OK
    assert cards.gpu_count(two, Settings(), where, facts).severity is Severity.OK


@pytest.mark.parametrize(
    ("asked", "severity"),
    [("", Severity.OK), ("0-127", Severity.OK), ("4,120-128", Severity.BLOCK)],
)
def test_cpus_that_the_host_does_not_have_are_refused(asked: str, severity: Severity) -> None:
    facts = hosts.rtx4090_480gb_two_sockets()
    finding = speed.inference_cpus(Settings(inference_cpus=asked), facts)
    assert finding.severity is severity
    without = facts.model_copy(update={"nodes": None})
    unsure = speed.inference_cpus(Settings(inference_cpus=asked), without)
    assert unsure.severity is (Severity.UNKNOWN if asked else Severity.OK)


def test_what_others_took_of_the_cgroups_limit_is_not_to_be_had() -> None:
    facts = changed(
        "limits", hosts.no_gpu_small(), memory_bytes=20 * GIB, memory_room_bytes=GIB // 4
    )
    placement = placed(facts, (0,))
    budget = taking(facts, placement, fetch_gb=0, ram_gb=0.4)
    finding = judged(shipped("demo"), facts, placement, budget)["memory"]
    assert (finding.severity, finding.found) == (Severity.BLOCK, "0.3 GB (cgroup)")
    assert "raise the cgroup's limit" in finding.next_step.en


def test_more_threads_than_cores_are_warned_of() -> None:
    # The two nodes have 64 cores; 128 would be hyperthreads.
    facts = hosts.rtx4090_480gb_two_sockets()
    assert flagship(facts, threads=64)["threads"].severity is Severity.OK
    finding = flagship(facts, threads=65)["threads"]
    assert finding.severity is Severity.WARN
    assert finding.fix == "export ORCH_THREADS=64"


def test_arguments_that_an_engine_answers_late_are_warned_of() -> None:
    # The pool of 8,192 tokens is no larger than one reply of 8,192: KTransformers then takes fewer at once.
    finding = flagship(hosts.rtx4090_480gb_two_sockets(), max_tokens=8192)["engine-arguments"]
    assert finding.severity is Severity.WARN
    assert "--cache_lens" in finding.found


def test_a_slow_disk_is_told_as_the_time_a_start_takes() -> None:
    # 404.43 GB at 100 MB/s: 4,044 s = 67 min, over the hour that the profile waits.
    finding = flagship(changed("disk", read_bytes_per_s=1.0e8))["load-time"]
    assert finding.severity is Severity.WARN
    assert (finding.found, finding.needed) == ("67 min (0.10 GB/s)", "<= 60 min")
    assert finding.fix == "export ORCH_LOAD_TIMEOUT_S=8089"
    assert (
        flagship(changed("disk", read_bytes_per_s=None))["load-time"].severity is Severity.UNKNOWN
    )


def test_hubs_out_of_reach_matter_only_while_weights_are_missing() -> None:
    facts = changed("", reach=Reach(huggingface=False, modelscope=False))
    assert flagship(facts)["sources"].severity is Severity.WARN
    where = placed(facts, (0, 1))
    there = taking(facts, where, fetch_gb=0, ram_gb=395, vram_gb=14)
    found = judged(shipped("deepseek-r1-q4km"), facts, where, there)
    assert found["sources"].severity is Severity.OK
    one = changed("", reach=Reach(huggingface=False, modelscope=True))
    assert flagship(one)["sources"].severity is Severity.OK


def test_a_gpu_profile_without_the_container_toolkit_is_refused_and_a_cpu_profile_warned() -> None:
    facts = changed("docker", nvidia_runtime=False, cdi=False)
    assert flagship(facts)["toolkit"].severity is Severity.BLOCK
    assert on_one_node(shipped("demo"), facts)["toolkit"].severity is Severity.WARN


def test_a_card_without_its_driver_is_refused_where_a_card_is_needed() -> None:
    bare = changed("", gpus=(Gpu(index=0),), driver_version=None, driver_cuda=None)
    assert flagship(bare)["driver"].severity is Severity.BLOCK
    assert on_one_node(shipped("demo"), bare)["driver"].severity is Severity.OK


def test_a_driver_for_an_older_cuda_is_refused_with_both_versions() -> None:
    finding = flagship(changed("", driver_version="570.172.08", driver_cuda="12.8"))["driver"]
    assert finding.severity is Severity.BLOCK
    assert (finding.found, finding.needed) == ("CUDA 12.8 (570.172.08)", "CUDA 13.0")
    in_windows = changed(
        "", changed("limits", virtual="wsl"), driver_version="546.33", driver_cuda="12.3"
    )
    assert "in Windows" in flagship(in_windows)["driver"].next_step.en


def test_of_several_cards_the_oldest_that_is_used_counts() -> None:
    new, old = Gpu(index=0, compute_capability=(8, 9)), Gpu(index=1, compute_capability=(7, 0))
    facts = changed("", gpus=(new, old))
    generation = of_host(facts)["gpu-generation"]
    assert (generation.severity, generation.found) == (Severity.WARN, "7.0")
    finding = flagship(facts, gpus=(0, 1))["compute-capability"]
    assert (finding.severity, finding.found) == (Severity.BLOCK, "7.0")
    assert flagship(facts, gpus=(0,))["compute-capability"].found == "8.9"
    newer = changed("", gpus=(new, Gpu(index=1, compute_capability=(9, 0))))
    finding = flagship(newer, gpus=(0, 1))["compute-capability"]
    assert (finding.severity, finding.found) == (Severity.OK, "8.9")
    unsaid = changed("", gpus=(new, Gpu(index=1)))
    finding = flagship(unsaid, gpus=(0, 1))["compute-capability"]
    assert finding.severity is Severity.UNKNOWN


def test_fp8_weights_are_refused_on_ampere() -> None:
    profile = shipped("deepseek-r1-amxint4")
    finding = on_one_node(profile, hosts.rtx3090_512gb())["compute-capability"]
    assert (finding.severity, finding.found, finding.needed) == (Severity.BLOCK, "8.6", ">= 8.9")


def test_files_that_the_engine_cannot_read_are_refused_with_the_reason() -> None:
    facts = hosts.no_gpu_small()
    where = placed(facts, (0,))
    budget = taking(facts, where, fetch_gb=0, ram_gb=1)
    found = judged(shipped("demo"), facts, where, budget, ["blk.0.x is of type IQ1_S"])
    assert found["engine-reads"].severity is Severity.BLOCK
    assert "IQ1_S" in found["engine-reads"].found


def on_one_node(profile: Profile, facts: HostFacts) -> dict[str, Finding]:
    where = placed(facts, (0,))
    return judged(profile, facts, where, taking(facts, where, fetch_gb=0, ram_gb=1, vram_gb=1))


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


def test_to_undo_a_newer_driver_is_to_install_the_one_that_was_there() -> None:
    facts = hosts.old_driver_v100()
    where = placed(facts, [0])
    finding = cards.driver(shipped("deepseek-r1-q4km"), where, facts)
    assert finding.severity is Severity.BLOCK
    assert finding.undo == "apt-get install -y nvidia-driver-470"
    without = facts.model_copy(update={"driver_version": None, "gpus": (Gpu(index=0),)})
    undo = cards.driver(shipped("deepseek-r1-q4km"), where, without).undo
    assert undo == "apt-get purge -y '^nvidia-driver.*'"


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

"""Whole hosts, and what each profile's verdict on them is."""

from collections.abc import Callable

import pytest

import hosts
from judged import by_name, judged, named, placed, shipped, taking
from orchestrator.core.advice import advise
from orchestrator.core.checks.finding import Finding, Severity
from orchestrator.core.deriving import derived
from orchestrator.core.facts import HostFacts

# What the flagship takes here, by hand: 404.4 GB to fetch; 395 GB of RAM; 14 GB of VRAM.
FETCH_GB, RAM_GB, VRAM_GB = 404.4, 395.0, 14.0
CONTAINER_BLOCKS = {"container", "docker"}
CONTAINER_WARNS = {"cgroup-limit", "cpu-limit"}
ARM_BLOCKS = {"architecture", "avx2", "cpu-instructions"}

# host, the nodes used, blockers, warnings. 1 GiB is 1.0737 GB.
FLAGSHIP = [
    # 466 GiB = 500.4 GB available, over 480; each node 395 / 2 = 197.5 of 233 GiB = 250.2 GB.
    (hosts.rtx4090_480gb_two_sockets, (0, 1), set(), {"memory-policy"}),
    # 246 GiB = 264.1 GB, under 395.
    (hosts.rtx4090_256gb, (0,), {"memory"}, set()),
    # 497 GiB = 533.6 GB; 24,239 MiB = 25.4 GB of VRAM; 8.6 is over 8.0.
    (hosts.rtx3090_512gb, (0,), set(), set()),
    (hosts.no_amx_epyc, (0,), set(), set()),
    # One node alone: 496 GiB = 532.6 GB, over 395.
    (hosts.amx_sapphire_rapids, (0,), set(), set()),
    # 395 / 4 = 98.8 of 123 GiB = 132.1 GB on each; 494 GiB = 530.4 GB in all.
    (hosts.four_nodes_128gb_each, (0, 1, 2, 3), set(), {"memory-policy"}),
    (hosts.two_cards_24gb, (0,), set(), {"several-gpus"}),
    # The cgroup's 64 GiB = 68.7 GB count, not the 471 GiB that /proc shows; 16 of 72 cores.
    (
        hosts.container_64gb_limit_on_512gb,
        (0, 1),
        CONTAINER_BLOCKS | {"memory"},
        CONTAINER_WARNS | {"memory-policy", "threads"},
    ),
    # 22 GiB = 23.6 GB, and no card.
    (hosts.no_gpu_small, (0,), {"memory", "gpu-count", "vram"}, {"long-output"}),
    # 30 GiB = 32.2 GB; 21,711 MiB = 22.8 GB of VRAM is over 20.
    (hosts.wsl2_4090, (0,), {"memory"}, {"wsl", "swap"}),
    (hosts.h200, (0,), set(), set()),
    (hosts.aarch64_grace, (0,), ARM_BLOCKS, {"memory-only-nodes"}),
    # A slice has 5,952 MiB = 6.2 GB, under 14 and 20; 247 GiB = 265.2 GB on each node.
    (hosts.mig_a30, (0, 1), {"gpu-count", "vram"}, {"mig", "long-output", "memory-policy"}),
    # 7.0 is under 8.0; CUDA 11.4 under 13.0; a node has 371 GiB = 398.4 GB, over 395.
    (hosts.old_driver_v100, (0,), {"compute-capability", "driver"}, {"gpu-generation"}),
]


@pytest.mark.parametrize(("host", "nodes", "blocks", "warns"), FLAGSHIP)
def test_the_full_model_is_refused_for_what_the_host_lacks_and_for_nothing_else(
    host: Callable[[], HostFacts], nodes: tuple[int, ...], blocks: set[str], warns: set[str]
) -> None:
    found = flagship_on(host(), nodes)
    # This version may or may not have the engine's image: that is not about the host.
    assert named(found, Severity.BLOCK) == blocks
    assert named(found, Severity.WARN) == warns


# The distillation takes 13.6 GB of RAM, the demo 0.6: both fit on the smallest of these hosts.
SMALL_MODELS = [
    (hosts.rtx4090_480gb_two_sockets, set(), set()),
    (hosts.rtx4090_256gb, set(), set()),
    (hosts.rtx3090_512gb, set(), set()),
    (hosts.no_amx_epyc, set(), set()),
    (hosts.amx_sapphire_rapids, set(), set()),
    (hosts.four_nodes_128gb_each, set(), set()),
    (hosts.two_cards_24gb, set(), set()),
    (hosts.container_64gb_limit_on_512gb, CONTAINER_BLOCKS, CONTAINER_WARNS | {"threads"}),
    (hosts.no_gpu_small, set(), set()),
    (hosts.wsl2_4090, set(), {"wsl", "swap"}),
    (hosts.h200, set(), set()),
    (hosts.aarch64_grace, ARM_BLOCKS, {"memory-only-nodes"}),
    (hosts.mig_a30, set(), {"mig"}),
    (hosts.old_driver_v100, set(), {"gpu-generation"}),
]


@pytest.mark.parametrize(
    ("name", "sizes_gb"), [("deepseek-r1-distill-14b", (9.0, 13.6)), ("demo", (0.0, 0.6))]
)
@pytest.mark.parametrize(("host", "blocks", "warns"), SMALL_MODELS)
def test_a_small_model_on_the_cpu_is_refused_only_where_nothing_runs(
    host: Callable[[], HostFacts],
    blocks: set[str],
    warns: set[str],
    name: str,
    sizes_gb: tuple[float, float],
) -> None:
    facts = host()
    placement = placed(facts, (0,))
    budget = taking(facts, placement, fetch_gb=sizes_gb[0], ram_gb=sizes_gb[1])
    found = judged(shipped(name), facts, placement, budget)
    assert named(found, Severity.BLOCK) == blocks
    assert named(found, Severity.WARN) == warns


@pytest.mark.parametrize(("host", "blocks"), [(row[0], row[2]) for row in FLAGSHIP])
def test_computed_placement_and_budget_lead_to_the_same_verdict(
    host: Callable[[], HostFacts], blocks: set[str]
) -> None:
    profile = shipped("deepseek-r1-q4km")
    total = profile.model.total_bytes
    found = by_name(advise(profile, (), host(), derived(profile.model), total).findings)
    if host is hosts.container_64gb_limit_on_512gb:
        blocks = blocks | {"memory-nodes"}  # the limit is shared out: 64 / 2 GiB of each node
    assert named(found, Severity.BLOCK) == blocks
    if host is hosts.rtx4090_480gb_two_sockets:
        # 404.43 GB of weights, 6.72 of images, 1.07 left free.
        assert found["disk"].needed == "412.2 GB"


def test_every_composed_host_is_in_both_tables() -> None:
    assert [row[0] for row in FLAGSHIP] == list(hosts.ALL)
    assert [row[0] for row in SMALL_MODELS] == list(hosts.ALL)


def test_a_refusal_has_the_numbers_of_both_sides() -> None:
    small = flagship_on(hosts.rtx4090_256gb(), (0,))["memory"]
    assert (small.found, small.needed) == ("264.1 GB", "395.0 GB")
    assert "add 130.9 GB of RAM" in small.next_step.en
    limited = flagship_on(hosts.container_64gb_limit_on_512gb(), (0, 1))["memory"]
    assert limited.found == "68.7 GB (cgroup)"
    sliced = flagship_on(hosts.mig_a30(), (0, 1))["vram"]
    assert (sliced.found, sliced.needed) == ("GPU 0: 6.2 GB", "14.0 GB")


def test_a_card_that_the_engine_does_not_use_is_said_to_be_idle() -> None:
    profile, facts = shipped("demo"), hosts.rtx4090_256gb()
    found = by_name(advise(profile, (), facts, None, 0).findings)["gpu-count"]
    assert (found.severity, found.found) == (
        Severity.OK,
        "1 GPU, not used: llamacpp runs on the CPU",
    )


def test_without_a_card_none_is_said_to_be_too_full() -> None:
    missing = flagship_on(hosts.no_gpu_small(), (0,))["vram"]
    assert missing.found == "0 GPUs"
    assert "put an NVIDIA card in" in missing.next_step.en


def test_what_a_virtual_machine_does_not_show_is_said_so() -> None:
    facts = hosts.no_gpu_small()
    guest = facts.model_copy(
        update={
            "cpu": facts.cpu.model_copy(update={"governor": None, "max_mhz": None}),
            "limits": facts.limits.model_copy(update={"virtual": "kvm"}),
        }
    )
    found = by_name(advise(shipped("demo"), (), guest, None, 0).findings)
    assert found["governor"].found == found["frequency"].found == "n/a (kvm)"


def test_the_amx_engine_is_refused_on_a_cpu_without_amx() -> None:
    # Zen 3 has none of these; Sapphire Rapids has all, and an L40S of 45,596 MiB = 47.8 GB.
    profile = shipped("deepseek-r1-amxint4")
    facts = hosts.no_amx_epyc()
    placement = placed(facts, (0,))
    budget = taking(facts, placement, fetch_gb=689, ram_gb=350, vram_gb=27)
    found = judged(profile, facts, placement, budget)
    # A 4090 has 24,080 MiB = 25.2 GB, under 27.
    # Its experts in INT4 are published by nobody.
    assert named(found, Severity.BLOCK) == {"cpu-instructions", "vram", "also-needs"}
    assert "amx_tile" in found["cpu-instructions"].next_step.en
    able = hosts.amx_sapphire_rapids()
    placement = placed(able, (0, 1))
    budget = taking(able, placement, fetch_gb=689, ram_gb=350, vram_gb=27)
    found = judged(profile, able, placement, budget)
    assert named(found, Severity.BLOCK) == {"also-needs"}
    # 48 GB are recommended, and nobody has shown that this profile runs.
    assert {"long-output", "profile-status"} <= named(found, Severity.WARN)


def flagship_on(facts: HostFacts, nodes: tuple[int, ...]) -> dict[str, Finding]:
    placement = placed(facts, nodes)
    budget = taking(facts, placement, fetch_gb=FETCH_GB, ram_gb=RAM_GB, vram_gb=VRAM_GB)
    return judged(shipped("deepseek-r1-q4km"), facts, placement, budget)

"""Whether a profile fits: disk, RAM, VRAM, cards, CPUs, each refused or warned of with its numbers."""

from typing import Any

import pytest

import hosts
from hosts import GIB, MIB
from judged import (
    GB,
    by_name,
    changed,
    flagship,
    judged,
    of_host,
    on_one_node,
    placed,
    shipped,
    taking,
)
from orchestrator.core.checks import cards, profile_findings, speed
from orchestrator.core.checks.finding import Severity
from orchestrator.core.facts import Gpu, Reach
from orchestrator.core.settings import Settings


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


def test_to_undo_a_newer_driver_is_to_install_the_one_that_was_there() -> None:
    facts = hosts.old_driver_v100()
    where = placed(facts, [0])
    finding = cards.driver(shipped("deepseek-r1-q4km"), where, facts)
    assert finding.severity is Severity.BLOCK
    assert finding.undo == "apt-get install -y nvidia-driver-470"
    without = facts.model_copy(update={"driver_version": None, "gpus": (Gpu(index=0),)})
    undo = cards.driver(shipped("deepseek-r1-q4km"), where, without).undo
    assert undo == "apt-get purge -y '^nvidia-driver.*'"

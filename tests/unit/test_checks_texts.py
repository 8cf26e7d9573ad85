"""Every check speaks both languages, and its commands are commands."""

import re
import subprocess
from collections.abc import Iterator

import hosts
from hosts import GIB, MIB
from judged import GB, judged, placed, shipped, taking
from orchestrator.core.checks.finding import Finding, Severity
from orchestrator.core.facts import Docker, Gpu, HostFacts, Reach

CHINESE = re.compile(r"[\u4e00-\u9fff]")


def neglected() -> HostFacts:
    """The box of the README with all amiss that can be amiss at once."""
    host = hosts.rtx4090_480gb_two_sockets()
    assert host.nodes
    assert host.disk
    first, second = host.nodes
    return host.model_copy(
        update={
            "cpu": host.cpu.model_copy(
                update={"governor": "powersave", "limit_mhz": 800.0, "flags": frozenset({"sse2"})}
            ),
            "memory": host.memory.model_copy(
                update={
                    "available_bytes": 200 * GIB,
                    "swap_total_bytes": 8 * GIB,
                    "swap_free_bytes": 8 * GIB,
                    "hugepages_bytes": 64 * GIB,
                    "thp": "never",
                    "largest_free_block_bytes": 64 << 10,
                }
            ),
            "nodes": (
                first.model_copy(update={"memory_free_bytes": 100 * GIB}),
                second.model_copy(update={"memory_bytes": 64 * GIB}),
            ),
            "numa_balancing": True,
            "gpus": (
                Gpu(
                    index=0,
                    name="Tesla T4",
                    compute_capability=(7, 5),
                    memory_bytes=15360 * MIB,
                    memory_free_bytes=14900 * MIB,
                    persistence=False,
                    ecc_errors=3,
                ),
                Gpu(index=1, name="Tesla T4"),
            ),
            "driver_version": "535.161.08",
            "driver_cuda": "12.2",
            "disk": host.disk.model_copy(
                update={"free_bytes": 100 * GB, "kind": "hdd", "read_bytes_per_s": 1.0e8}
            ),
            "limits": host.limits.model_copy(
                update={"memlock_bytes": 65536, "cpus": 4.0, "memory_bytes": 128 * GIB}
            ),
            "lost_gpus": 1,
            "docker": Docker(
                answers=False,
                version="20.10.5",
                compose_version="1.29.2",
                nvidia_runtime=False,
                cdi=False,
                rootless=True,
                cgroup_driver="systemd",
            ),
            "reach": Reach(
                image_registry=False, huggingface=False, modelscope=False, clock_ahead_s=9000
            ),
            "busy_ports": frozenset({8080, 3000}),
        }
    )


def driverless() -> HostFacts:
    host = hosts.rtx4090_480gb_two_sockets()
    bare = {"driver_version": None, "driver_cuda": None, "gpus": (Gpu(index=0),)}
    return host.model_copy(update=bare)


def everything() -> Iterator[Finding]:
    every = (*(host() for host in hosts.ALL), neglected(), driverless(), HostFacts())
    for facts in every:
        nodes = tuple(node.id for node in facts.memory_nodes or ()) or (0,)
        where = placed(facts, nodes, max_tokens=8192)  # as many as there is cache for: one too many
        for name in ("deepseek-r1-q4km", "deepseek-r1-amxint4", "demo"):
            budget = taking(facts, where, fetch_gb=404.4, ram_gb=395, vram_gb=16)
            yield from judged(shipped(name), facts, where, budget, ["a tensor"]).values()


FINDINGS = tuple(everything())


def test_these_hosts_bring_every_check_to_say_that_something_is_wrong() -> None:
    wrong = {one.check for one in FINDINGS if one.severity in {Severity.WARN, Severity.BLOCK}}
    # Of buildx and memlock only the value can be told, every engine has an image, and the others have
    # tests of their own.
    never_wrong = {"operating-system", "buildx", "memlock", "engine-image"} | {
        "memory-limit",
        "inference-cpus",
        "context",
    }
    assert {one.check for one in FINDINGS} - wrong == never_wrong


def test_every_finding_says_in_both_languages_why_it_matters() -> None:
    for one in FINDINGS:
        assert one.why.en.isascii(), one.check
        assert CHINESE.search(one.why.zh), one.check
        assert not CHINESE.search(one.found + one.needed), one.check


def test_chinese_has_one_word_for_each_thing() -> None:
    # A profile is 配置 (方案 stands only for the placement of pages), a folder 目录, a blocker 阻断.
    for one in FINDINGS:
        for text in (one.why.zh, one.next_step.zh):
            assert "方案" not in text.replace("放置方案", ""), one.check
            assert "文件夹" not in text, one.check
            assert "阻止" not in text, one.check


def test_no_finding_is_a_riddle() -> None:
    for one in FINDINGS:
        cells = {one.found, one.needed}
        assert not cells & {"=", "", "vm"}, one.check
        assert not re.search(
            r"\b1 (GPUs|nodes|cores|threads|CPUs)\b", f"{one.found} {one.needed}"
        ), one


def test_what_is_not_ok_has_a_fix_or_a_next_step_in_both_languages() -> None:
    for one in FINDINGS:
        if one.severity is Severity.OK:
            continue
        assert one.fix or one.next_step.en, one.check
        assert bool(one.next_step.en) == bool(one.next_step.zh), one.check
        assert one.next_step.en.isascii(), one.check
        assert not one.next_step.zh or CHINESE.search(one.next_step.zh), one.check


def test_both_languages_name_the_same_numbers() -> None:
    for one in FINDINGS:
        for said in (one.why, one.next_step):
            assert numbers(said.en) == numbers(said.zh), f"{one.check}: {said}"


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+(?:\.\d+)?", text))


def test_fix_and_undo_are_commands_that_a_shell_can_read() -> None:
    commands = sorted({command for one in FINDINGS for command in (one.fix, one.undo) if command})
    assert commands
    for command in commands:
        subprocess.run(["bash", "-n", "-c", command], check=True)


def test_the_command_that_finds_out_what_is_unknown_is_one_too() -> None:
    asked = {
        one.next_step.en.removeprefix("find out with: ")
        for one in FINDINGS
        if one.severity is Severity.UNKNOWN
    }
    for command in sorted(asked):
        subprocess.run(["bash", "-n", "-c", command], check=True)


def test_what_can_be_undone_says_how() -> None:
    # Compaction leaves nothing to undo; install.sh leaves what is there as it is.
    nothing_to_undo = ("echo 1 > /proc/sys/vm", "./install.sh")
    for one in FINDINGS:
        lasting = one.fix and not one.fix.startswith(nothing_to_undo)
        assert not lasting or one.undo, one.check

"""The forms in which tools say the same thing, one by one, and what they leave open."""

from pathlib import PurePosixPath

import pytest

from orchestrator.core.facts import Cpu, HostFacts, Memory
from orchestrator.core.probes import disk, lscpu, memory, numa
from orchestrator.core.probes.captures import facts_of
from orchestrator.core.probes.text import cpu_list, size_bytes

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("125Gi", 134_217_728_000),
        ("1,2Gi", 1_288_490_188),  # 1.2 x 2^30, less than one byte cut off
        ("8.0Gi", 8 * GIB),
        ("734Mi", 734 * MIB),
        ("125G", 125_000_000_000),  # 1000-based, the smaller of its two meanings
        ("0B", 0),
        ("0", 0),
        ("131072", None),  # KiB, MiB or bytes
        ("12Q", None),
        ("", None),
    ],
)
def test_a_size_counts_only_with_a_unit_that_leaves_no_more_than_one_promise(
    text: str, size: int | None
) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("0 2 4", (0, 2, 4)),
        ("", ()),
        ("3-1", None),
        ("0-99999", None),
        ("0-x", None),
    ],
)
def test_a_damaged_list_of_cpus_is_no_list(text: str, cpus: tuple[int, ...] | None) -> None:
    assert cpu_list(text) == cpus


def test_lscpu_is_asked_for_the_cpus_that_run_not_for_those_that_are_installed() -> None:
    text = "CPU(s): 4\nOn-line CPU(s) list: 0,2\nCPU(s) scaling MHz: 65%\n"
    assert lscpu.parse_lscpu(text).cpu.threads == 2
    assert lscpu.parse_lscpu("CPU(s): 4\n").cpu.threads is None


def test_threads_per_core_are_unknown_where_they_are_not_the_same_for_all() -> None:
    hybrid = (
        "On-line CPU(s) list: 0-31\nThread(s) per core: 2\nCore(s) per socket: 24\nSocket(s): 1\n"
    )
    even = hybrid.replace("0-31", "0-47")
    assert lscpu.parse_lscpu(hybrid).cpu.threads_per_core is None
    assert lscpu.parse_lscpu(even).cpu.threads_per_core == 2


def test_a_list_of_flags_that_the_text_breaks_off_in_proves_nothing_absent() -> None:
    cut = lscpu.parse_lscpu("Flags: fpu avx2 avx5").cpu
    assert (cut.avx2, cut.avx512, cut.amx) == (True, None, None)
    whole = lscpu.parse_lscpu("Flags: fpu avx2 avx5\n").cpu
    assert (whole.avx2, whole.avx512, whole.amx) == (True, False, False)


def test_flags_of_x86_are_absent_on_any_other_architecture() -> None:
    assert Cpu(architecture="aarch64").avx2 is False
    assert Cpu(architecture="x86_64").avx2 is None


def test_nodes_keep_their_number_and_their_cores_where_siblings_can_be_told() -> None:
    text = (
        "On-line CPU(s) list: 0-7\nThread(s) per core: 2\nCore(s) per socket: 4\nSocket(s): 1\n"
        "NUMA node(s): 2\nNUMA node0 CPU(s): 0,1,4,5\nNUMA node8 CPU(s): 2,3,6,7\n"
    )
    nodes = lscpu.parse_lscpu(text).nodes
    assert nodes is not None
    assert [(node.id, node.cpus, node.physical_cores) for node in nodes] == [
        (0, (0, 1, 4, 5), 2),
        (8, (2, 3, 6, 7), 2),
    ]


def test_offline_cpus_of_lscpu_e_are_left_out_and_siblings_counted_once() -> None:
    text = (
        "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE MAXMHZ\n"
        "0 0 0 0 0:0:0:0 yes 3400.0000\n1 0 0 0 0:0:0:0 yes 3400.0000\n"
        "2 0 0 1 1:1:1:0 yes 3400.0000\n3 - - - - no -\n4 0 1 2 2:2:2:1 no 3400.0000\n"
    )
    cpu = lscpu.cpu_of_rows(lscpu.parse_lscpu_e(text))
    assert (cpu.threads, cpu.physical_cores, cpu.sockets) == (3, 2, 1)


def test_a_host_without_numa_says_so_and_has_no_nodes() -> None:
    assert numa.parse_numactl("No NUMA available on this system\n") is None


def test_cpus_whose_count_is_another_than_the_text_says_are_unknown() -> None:
    text = "available: 1 nodes (0)\nnode 0 cpus: 0-14 (16)\nnode 0 size: 5 MB\n"
    nodes = numa.parse_numactl(text)
    assert nodes is not None
    assert (nodes[0].cpus, nodes[0].memory_bytes) == (None, 5 * MIB)


def test_nodes_that_a_text_lost_are_not_taken_for_nodes_that_are_not_there() -> None:
    facts = facts_of({"numactl.txt": "available: 2 nodes (0-1)\nnode 0 size: 64 MB\n"})
    assert facts.nodes is None
    assert facts.node_count == 2


def test_a_node_that_lscpu_counts_but_does_not_list_leaves_only_their_number() -> None:
    facts = facts_of({"lscpu.txt": "NUMA node(s): 3\nNUMA node0 CPU(s): 0\nNUMA node1 CPU(s): 1\n"})
    assert facts.nodes is None
    assert facts.node_count == 3


def test_a_number_of_nodes_that_no_list_supports_still_contradicts_one_that_has_it() -> None:
    captures = {
        "numactl.txt": "available: 1 nodes (0)\nnode 0 size: 64 MB\n",
        "lscpu.txt": "NUMA node(s): 2\n",
    }
    facts = facts_of(captures)
    assert (facts.nodes, facts.node_count) == (None, None)


def test_two_lists_of_cpus_that_differ_leave_the_layout_open() -> None:
    rows = "CPU CORE SOCKET ONLINE\n0 0 0 yes\n1 1 0 yes\n"
    named = "On-line CPU(s) list: 0-3\nCore(s) per socket: 4\nSocket(s): 1\n"
    cpu = facts_of({"lscpu.txt": named, "lscpu-e.txt": rows}).cpu
    assert (cpu.threads, cpu.physical_cores, cpu.sockets) == (None, None, None)


def test_two_texts_that_differ_leave_the_number_of_nodes_open() -> None:
    captures = {
        "numactl.txt": "available: 1 nodes (0)\nnode 0 size: 64 MB\n",
        "lscpu.txt": "NUMA node(s): 2\nNUMA node0 CPU(s): 0\nNUMA node1 CPU(s): 1\n",
    }
    facts = facts_of(captures)
    assert facts.nodes is None
    assert facts.node_count is None


def test_numastat_tells_the_memory_of_nodes_where_nothing_else_does() -> None:
    text = (
        "Per-node system memory usage (in MBs):\nToken Unaccepted not in hash table.\n"
        "  Node 0  Node 1  Total\n  ------ ------ -----\nMemTotal 100.50 200.00 300.50\n"
        "MemFree 50.00 60.00 110.00\n"
    )
    nodes = facts_of({"numastat.txt": text}).nodes
    assert nodes is not None
    # 100.5 MiB = 105 381 888 bytes
    assert [node.memory_bytes for node in nodes] == [105_381_888, 200 * MIB]
    assert [node.memory_free_bytes for node in nodes] == [50 * MIB, 60 * MIB]


def test_the_kernel_tells_the_memory_of_nodes_where_numactl_is_not_installed() -> None:
    listed = "NUMA node(s): 2\nNUMA node0 CPU(s): 0\nNUMA node1 CPU(s): 1\n"
    text = (
        "Node 0 MemTotal:       65536000 kB\nNode 0 MemFree:        32768000 kB\n"
        "Node 0 MemUsed:        32768000 kB\n"
        "Node 1 MemTotal:       66560000 kB\nNode 1 MemFree:        33792000 kB\n"
    )
    nodes = facts_of({"node-meminfo.txt": text, "lscpu.txt": listed}).nodes
    assert nodes is not None
    assert [(node.memory_bytes, node.memory_free_bytes) for node in nodes] == [
        (64000 * MIB, 32000 * MIB),
        (65000 * MIB, 33000 * MIB),
    ]
    assert [node.cpus for node in nodes] == [(0,), (1,)]
    # One node's file does not say that there is no other.
    assert facts_of({"node-meminfo.txt": text}).node_count is None


OLD_FREE = """             total       used       free     shared    buffers     cached
Mem:          125G        17G       106G        41M       1.2G       100G
-/+ buffers/cache:        16G       107G
Swap:         4.0G         0B       4.0G
"""


def test_a_free_of_old_does_not_say_what_is_available() -> None:
    found = memory.parse_free(OLD_FREE)
    assert found.available_bytes is None
    assert (found.total_bytes, found.swap_free_bytes) == (125 * 10**9, 4 * 10**9)


def test_the_last_size_of_a_text_that_breaks_off_may_lack_its_unit() -> None:
    text = "   total used free shared buff/cache available\nMem: 125Gi 1Gi 1G"
    found = memory.parse_free(text)
    assert (found.total_bytes, found.free_bytes) == (125 * GIB, None)


def test_a_wide_free_has_what_is_available_in_its_last_column() -> None:
    text = (
        "        total used free shared buffers cache available\n"
        "Mem:    125Gi 17Gi 10Gi 41Mi 1.0Gi 97Gi 106Gi\n"
    )
    assert memory.parse_free(text).available_bytes == 106 * GIB


def test_the_kernels_exact_numbers_beat_rounded_ones() -> None:
    facts = facts_of(
        {
            "meminfo.txt": "MemTotal: 131000000 kB\n",
            "free.txt": "   total used free shared buff/cache available\nMem: 125Gi 1Gi 1Gi 0B 1Gi 119Gi\n",
        }
    )
    assert facts.memory == Memory(
        total_bytes=134_144_000_000, available_bytes=119 * GIB, free_bytes=GIB
    )


def test_reserved_huge_pages_are_known_where_the_kernel_sums_them_up() -> None:
    assert memory.parse_meminfo("Hugetlb: 2097152 kB\n").hugepages_bytes == 2 * GIB
    assert memory.parse_meminfo("HugePages_Total: 1024\n").hugepages_bytes is None


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("always [madvise] never\n", "madvise"),
        ("[always] madvise never", "always"),
        ("always", None),
    ],
)
def test_the_mode_of_huge_pages_is_the_word_in_brackets(text: str, mode: str | None) -> None:
    assert memory.parse_thp(text) == mode


def test_a_path_lies_on_the_deepest_mount_above_it_and_on_the_last_of_two_at_one_place() -> None:
    mounts = (
        "/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /data ext4 rw 0 0\nnas:/x /data nfs4 rw 0 0\n"
        "/dev/sdc1 /my\\040disk xfs rw 0 0\n"
    )
    for path, source in (
        ("/data/weights", "nas:/x"),
        ("/database", "/dev/sda1"),
        ("/my disk/weights", "/dev/sdc1"),
    ):
        mount = disk.mount_of(mounts, PurePosixPath(path))
        assert mount is not None
        assert mount.source == source


@pytest.mark.parametrize(
    ("filesystem", "flags", "virtual", "kind"),
    [
        ("ext4", ("0\n",), False, "ssd"),
        ("ext4", ("1\n",), False, "hdd"),
        ("xfs", ("0", "1"), False, "hdd"),  # a volume over both is as slow as its slower one
        ("ext4", ("1",), True, None),  # a hypervisor's disk says so by default
        ("ext4", ("0",), True, "ssd"),
        ("nfs4", (), False, "network"),
        ("9p", (), True, "network"),
        ("tmpfs", (), False, "memory"),
        ("overlay", (), False, None),
    ],
)
def test_a_disk_is_of_the_kind_that_what_is_below_it_says(
    filesystem: str, flags: tuple[str, ...], virtual: bool, kind: str | None
) -> None:
    assert disk.kind_of(filesystem, flags, virtual=virtual) == kind


def test_a_file_of_another_name_is_ignored() -> None:
    assert facts_of({"notes.txt": "CPU(s): 4\n"}) == HostFacts()

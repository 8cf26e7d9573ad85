"""The forms in which tools say the same thing, one by one, and what they leave open."""

import json
from pathlib import PurePosixPath

import pytest

from orchestrator.core.facts import Cpu, Docker, HostFacts, Limits, Memory
from orchestrator.core.probes import cgroup, disk, docker, kernel, lscpu, memory, numa
from orchestrator.core.probes.capability import capability_of
from orchestrator.core.probes.captures import facts_of
from orchestrator.core.probes.nvidia import parse_table
from orchestrator.core.probes.nvidia_lists import parse_query
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


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        # developer.nvidia.com/cuda-gpus and /cuda-legacy-gpus
        ("NVIDIA GeForce RTX 4090", (8, 9)),
        ("NVIDIA GeForce RTX 4060 ...", (8, 9)),
        ("NVIDIA GeForce RTX 3090", (8, 6)),
        ("NVIDIA A100-SXM4-80GB", (8, 0)),
        ("NVIDIA A100-SXM...", (8, 0)),
        ("Tesla V100-PCIE...", (7, 0)),
        ("Tesla T4", (7, 5)),
        ("NVIDIA H200", (9, 0)),
        ("NVIDIA H100 80GB HBM3", (9, 0)),
        ("NVIDIA GB10", (12, 1)),
        ("NVIDIA RTX 6000 Ada Generation", (8, 9)),
        ("Quadro RTX 6000", (7, 5)),
        ("NVIDIA RTX A6000", (8, 6)),
        ("NVIDIA RTX 6000 ...", None),  # of two generations
        ("NVIDIA A10...", None),  # A10 or A100
        ("NVIDIA GeForce RTX...", None),
        ("NVIDIA GeForce RTX 3050 A Laptop GPU", None),  # not the chip of the other 3050s
        ("NVIDIA A10G", None),
        ("NVIDIA Graphics Device", None),
        ("", None),
    ],
)
def test_a_cards_name_tells_its_capability_only_where_it_leaves_no_doubt(
    name: str, capability: tuple[int, int] | None
) -> None:
    assert capability_of(name) == capability


def test_a_driver_of_today_names_its_versions_otherwise() -> None:
    line = "| NVIDIA-SMI 610.57.04    KMD Version: 610.57.04    CUDA UMD Version: 13.3     |\n"
    smi = parse_table(line)
    assert (smi.driver_version, smi.driver_cuda, smi.gpus) == ("610.57.04", "13.3", None)


def test_what_a_card_has_free_is_what_the_table_says_is_not_used() -> None:
    table = (
        "|   0  NVIDIA GeForce RTX 4090        On  |   00000000:01:00.0  On |                  Off |\n"
        "|  0%   42C    P8             13W /  450W |    2853MiB /  24564MiB |     43%      Default |\n"
    )
    gpus = parse_table(table).gpus
    assert gpus is not None
    assert gpus[0].memory_free_bytes == 21711 * MIB  # 24564 - 2853
    assert gpus[0].persistence is True


def test_no_devices_is_an_answer_and_no_answer_is_none() -> None:
    assert facts_of({"nvidia-smi.txt": "No devices were found\n"}).gpus == ()
    failed = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    assert facts_of({"nvidia-smi.txt": failed}).gpus is None


QUERY = """name, index, memory.total [MiB], memory.free [MiB], compute_cap, mig.mode.current, persistence_mode, driver_version
NVIDIA A100-SXM4-80GB, 1, 81920 MiB, 81000 MiB, 8.0, Enabled, Enabled, 550.54
NVIDIA GB10, 0, [N/A], [Not Supported], 12.1, [N/A], Disabled, 550.54
"""


def test_the_query_is_read_by_its_header_with_units_or_without() -> None:
    for text in (QUERY, QUERY.replace(" MiB,", ",")):
        smi = parse_query(text)
        assert smi.driver_version == "550.54"
        assert smi.gpus is not None
        spark, ampere = smi.gpus
        assert (spark.index, spark.name, spark.memory_bytes) == (0, "NVIDIA GB10", None)
        assert (spark.memory_free_bytes, spark.compute_capability) == (None, (12, 1))
        assert (spark.mig, spark.persistence) == (False, False)
        assert (ampere.index, ampere.memory_free_bytes) == (1, 81000 * MIB)
        assert (ampere.mig, ampere.persistence) == (True, True)


def test_the_query_beats_the_table_and_the_table_adds_what_it_left_out() -> None:
    table = (
        "|   0  NVIDIA A100-SXM...  On   | 00000000:0E:00.0 Off |                    0 |\n"
        "| N/A   28C    P0    61W / 400W |     10MiB / 81920MiB |      0%      Default |\n"
    )
    query = "name, memory.total [MiB]\nNVIDIA A100-SXM4-80GB, 81251 MiB\n"
    gpus = facts_of({"nvidia-smi.txt": table, "nvidia-smi-query.csv": query}).gpus
    assert gpus is not None
    assert (gpus[0].name, gpus[0].memory_bytes) == ("NVIDIA A100-SXM4-80GB", 81251 * MIB)
    assert gpus[0].memory_used_bytes == 10 * MIB


def test_a_topology_places_cards_that_another_text_lists() -> None:
    listed = "GPU 0: NVIDIA H200 (UUID: GPU-0)\nGPU 1: NVIDIA H200 (UUID: GPU-1)\n"
    topology = (
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
        "GPU0\t X \tSYS\t0-3,8-11\t0\nGPU1\tSYS\t X \t4-7,12-15\t1\n"
    )
    facts = facts_of({"nvidia-smi-L.txt": listed, "topo.txt": topology})
    assert [gpu.numa_node for gpu in facts.gpus or ()] == [0, 1]
    assert facts.node_count == 2
    spaced = topology.replace("\t", "  ")
    again = facts_of({"nvidia-smi-L.txt": listed, "topo.txt": spaced})
    assert [gpu.numa_node for gpu in again.gpus or ()] == [0, 1]


def test_the_cpus_beside_a_card_are_all_only_where_they_are_one_run_from_the_first() -> None:
    text = "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t{}\t0\n"
    assert facts_of({"topo.txt": text.format("0-31")}).cpu.threads == 32
    assert facts_of({"topo.txt": text.format("0-15,32-47")}).cpu.threads is None
    assert facts_of({"topo.txt": text.format("16-31")}).cpu.threads is None


def test_nodes_that_cards_are_beside_need_not_be_all() -> None:
    topology = (
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
        "GPU0\t X \tSYS\t0-3\t0\nGPU1\tSYS\t X \t4-7\t1\n"
    )
    assert facts_of({"topo.txt": topology}).node_count is None


INFO = {
    "ServerVersion": "28.2.2",
    "CgroupDriver": "systemd",
    "CgroupVersion": "2",
    "Runtimes": {"runc": {}, "nvidia": {}},
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"],
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}],
    "ClientInfo": {"Version": "28.2.2", "Plugins": [{"Name": "compose", "Version": "2.26.1"}]},
}


def test_docker_is_read_from_its_json() -> None:
    assert docker.parse_info(json.dumps(INFO)) == Docker(
        answers=True,
        version="28.2.2",
        compose_version="2.26.1",
        nvidia_runtime=True,
        cdi=True,
        cgroup_driver="systemd",
        rootless=True,
    )
    assert facts_of({"docker-info.json": json.dumps(INFO)}).limits.cgroup_version == 2


def test_a_client_without_its_daemon_is_not_docker_that_answers() -> None:
    told = docker.parse_version('{"Client":{"Version":"28.2.2"},"Server":null}')
    assert told == Docker(answers=False, version="28.2.2")


def test_docker_is_read_from_what_it_prints_for_people() -> None:
    text = (
        "Client: Docker Engine - Community\n Version:    24.0.1\n Plugins:\n"
        "  buildx: Docker Buildx (Docker Inc.)\n    Version:  v0.10.4\n"
        "  compose: Docker Compose (Docker Inc.)\n    Version:  v2.18.1\n\n"
        "Server:\n Server Version: 24.0.2\n Cgroup Driver: systemd\n"
        " Runtimes: io.containerd.runc.v2 runc\n Security Options:\n  seccomp\n"
        "   Profile: builtin\n  cgroupns\n Kernel Version: 5.10.0-23-amd64\n"
    )
    assert docker.parse_info(text) == Docker(
        answers=True,
        version="24.0.2",
        compose_version="2.18.1",
        buildx_version="0.10.4",
        nvidia_runtime=False,
        cgroup_driver="systemd",
        rootless=False,
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Docker Compose version v2.24.5", "2.24.5"),
        ("Docker Compose version 2.26.1-4\n", "2.26.1-4"),
        ("github.com/docker/buildx 0.13.1+ds1 0.13.1+ds1-3", "0.13.1+ds1"),
        ("NVIDIA Container Toolkit CLI version 1.14.3\ncommit: 53b24618", "1.14.3"),
        ("docker: 'compose' is not a docker command.", None),
    ],
)
def test_a_tools_version_is_the_first_in_what_it_says(text: str, version: str | None) -> None:
    assert docker.version_in(text) == version


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


def test_a_file_of_another_name_is_ignored() -> None:
    assert facts_of({"notes.txt": "CPU(s): 4\n"}) == HostFacts()

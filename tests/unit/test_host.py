"""Reading a host: from trees of files such as the kernel shows, and once from this machine."""

import os
import resource
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from machines import a_tree
from orchestrator.adapters.host import ca_bundle, measure_disk, read_host, read_machine
from orchestrator.adapters.host import measuring as measuring_module
from orchestrator.core.facts import HostFacts

GIB = 1 << 30
# Of a host of 512 GiB: 536870912 kB = 2^29 kB = 2^39 bytes.
MEMINFO = (
    "MemTotal: 536870912 kB\nMemFree: 501000000 kB\nMemAvailable: 520000000 kB\nHugetlb: 0 kB\n"
)
AVAILABLE = 520_000_000 * 1024


def cpus(*, nodes: Mapping[int, range], threads_per_core: int = 1) -> dict[str, str]:
    """The kernel's files of CPUs, a socket for each node that has any, siblings side by side."""
    files = {"sys/devices/system/cpu/online": f"0-{max(map(max, filter(len, nodes.values())))}\n"}
    for node, members in nodes.items():
        for cpu in members:
            first = cpu - cpu % threads_per_core
            last = first + threads_per_core - 1
            folder = f"sys/devices/system/cpu/cpu{cpu}"
            files[f"{folder}/topology/physical_package_id"] = f"{node}\n"
            files[f"{folder}/topology/thread_siblings_list"] = f"{first}-{last}\n"
            files[f"{folder}/cpufreq/scaling_governor"] = "powersave\n"
            files[f"{folder}/cpufreq/cpuinfo_max_freq"] = "3400000\n"
            files[f"{folder}/cpufreq/scaling_max_freq"] = "2000000\n"
    return files


def nodes(sizes_kb: Mapping[int, tuple[int, int]], cpulists: Mapping[int, str]) -> dict[str, str]:
    files = {}
    for node, (total, free) in sizes_kb.items():
        folder = f"sys/devices/system/node/node{node}"
        files[f"{folder}/meminfo"] = (
            f"Node {node} MemTotal:       {total} kB\nNode {node} MemFree:        {free} kB\n"
        )
        files[f"{folder}/cpulist"] = cpulists.get(node, "") + "\n"
    return files


V2 = {
    "proc/meminfo": MEMINFO,
    "proc/self/cgroup": "0::/\n",
    "sys/fs/cgroup/cgroup.controllers": "cpuset cpu memory\n",
    "sys/fs/cgroup/memory.max": f"{64 * GIB}\n",
    "sys/fs/cgroup/memory.current": f"{30 * GIB}\n",
    # 20 GiB of it are pages of files, which make room when they must.
    "sys/fs/cgroup/memory.stat": f"anon {10 * GIB}\nactive_file {5 * GIB}\ninactive_file {15 * GIB}\n",
    "sys/fs/cgroup/cpu.max": "800000 100000\n",
    ".dockerenv": "",
}

V1 = {
    "proc/meminfo": MEMINFO,
    "proc/self/cgroup": "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{64 * GIB}\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{30 * GIB}\n",
    "sys/fs/cgroup/memory/memory.stat": (
        f"active_file 1\ninactive_file 1\n"
        f"total_active_file {5 * GIB}\ntotal_inactive_file {15 * GIB}\n"
    ),
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "800000\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    "proc/1/cgroup": "4:memory:/docker/abc\n",
}


@pytest.mark.parametrize(("version", "files"), [(2, V2), (1, V1)])
def test_a_container_of_64_gib_on_a_host_of_512_can_use_what_its_group_still_grants(
    tmp_path: Path, version: int, files: dict[str, str]
) -> None:
    facts = read_machine(a_tree(tmp_path, files))
    assert facts.memory.total_bytes == 512 * GIB
    assert facts.memory.available_bytes == AVAILABLE
    assert facts.limits.cgroup_version == version
    assert facts.limits.memory_bytes == 64 * GIB
    # 64 GiB less the 30 in use, of which 20 are page cache.
    assert facts.limits.memory_room_bytes == facts.usable_memory_bytes == 54 * GIB
    assert facts.limits.cpus == 8
    assert facts.limits.container == "docker"


def test_the_tightest_of_the_groups_around_us_counts(tmp_path: Path) -> None:
    files = V2 | {
        "proc/self/cgroup": "0::/outer/inner\n",
        "sys/fs/cgroup/outer/memory.max": f"{16 * GIB}\n",
        "sys/fs/cgroup/outer/memory.current": f"{10 * GIB}\n",
        "sys/fs/cgroup/outer/inner/memory.max": "max\n",
        "sys/fs/cgroup/outer/inner/cpu.max": "max 100000\n",
    }
    limits = read_machine(a_tree(tmp_path, files)).limits
    assert (limits.memory_bytes, limits.memory_room_bytes) == (16 * GIB, 6 * GIB)


def test_without_any_limit_all_that_the_host_has_available_is_usable(tmp_path: Path) -> None:
    files = V1 | {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}
    facts = read_machine(a_tree(tmp_path, files))
    assert facts.limits.unlimited == {"memory"}
    root_alone = {name: text for name, text in V2.items() if ".max" not in name}
    assert read_machine(a_tree(tmp_path / "2", root_alone)).limits.unlimited == {"memory", "cpus"}
    assert facts.limits.memory_bytes is None
    assert facts.usable_memory_bytes == AVAILABLE


def test_four_nodes_of_which_two_have_no_memory(tmp_path: Path) -> None:
    layout = {0: range(8), 1: range(8, 16)}
    sizes = {0: (1000, 900), 1: (2000, 1800), 2: (0, 0), 3: (0, 0)}
    files = cpus(nodes=layout, threads_per_core=2) | nodes(
        sizes, {0: "0-7", 1: "8-15", 2: "", 3: ""}
    )
    facts = read_machine(a_tree(tmp_path, files))
    assert facts.nodes is not None
    assert [node.memory_bytes for node in facts.nodes] == [1_024_000, 2_048_000, 0, 0]
    assert [node.memory_free_bytes for node in facts.nodes] == [921_600, 1_843_200, 0, 0]
    assert [node.cpus for node in facts.nodes] == [tuple(range(8)), tuple(range(8, 16)), (), ()]
    assert [node.physical_cores for node in facts.nodes] == [4, 4, 0, 0]
    assert [node.id for node in facts.memory_nodes or ()] == [0, 1]
    cpu = facts.cpu
    assert (cpu.sockets, cpu.physical_cores, cpu.threads, cpu.threads_per_core) == (2, 8, 16, 2)
    assert (cpu.governor, cpu.limit_mhz, cpu.max_mhz) == ("powersave", 2000.0, 3400.0)


def test_the_frequency_is_that_of_the_cpu_that_is_held_back_the_most(tmp_path: Path) -> None:
    files = cpus(nodes={0: range(2)}) | {
        "sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq": "4000000\n",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq": "4000000\n",
    }
    cpu = read_machine(a_tree(tmp_path, files)).cpu
    assert (cpu.limit_mhz, cpu.max_mhz) == (2000.0, 3400.0)


def test_a_kernel_without_numa_has_no_known_nodes(tmp_path: Path) -> None:
    facts = read_machine(a_tree(tmp_path, cpus(nodes={0: range(4)})))
    assert facts.nodes is None
    assert facts.node_count is None
    assert facts.cpu.physical_cores == 4


def test_wsl_is_told_by_its_kernel_and_nothing_else_of_it_is_made_up(tmp_path: Path) -> None:
    files = {
        "proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n",
        "proc/sys/kernel/ostype": "Linux\n",
        "proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable: 15000000 kB\n",
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    }
    facts = read_machine(a_tree(tmp_path, files))
    assert facts.limits.virtual == "wsl"
    assert facts.limits.memory_bytes is None
    assert facts.memory.available_bytes == 15_360_000_000
    assert facts.nodes is None
    assert facts.cpu.flags is None


def test_fragmented_memory_shows_in_its_largest_block_whatever_the_small_zones_have(
    tmp_path: Path,
) -> None:
    files = {
        "proc/buddyinfo": (
            "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3\n"
            "Node 0, zone   Normal  90000   5000    300      2      0      0      0      0      0      0      0\n"
        )
    }
    facts = read_machine(a_tree(tmp_path, files))
    # The largest free block is of order 3: 2^3 pages.
    assert facts.memory.largest_free_block_bytes == 8 * resource.getpagesize()


def test_an_empty_tree_says_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    facts = read_machine(tmp_path, "x86_64")
    assert facts.model_dump(exclude_defaults=True) == {
        "cpu": {"architecture": "x86_64"},
        "limits": {"virtual": ""},
    }


def test_cpus_that_others_were_given_are_not_ours(tmp_path: Path) -> None:
    files = cpus(nodes={0: range(8)}) | {
        "proc/self/status": "Name:\tx\nCpus_allowed_list:\t2-3,6\n"
    }
    assert read_machine(a_tree(tmp_path, files)).limits.cpuset == (2, 3, 6)
    a_tree(tmp_path, {"proc/self/status": "Cpus_allowed_list:\t0-7\n"})
    assert read_machine(tmp_path).limits.cpuset is None


@pytest.mark.parametrize(
    ("mark", "kind"),
    [
        ({"run/systemd/container": "lxc\n"}, "lxc"),
        ({"run/.containerenv": ""}, "podman"),
        ({"var/run/secrets/kubernetes.io/x": "", ".dockerenv": ""}, "kubernetes"),
        ({"proc/mounts": "lxcfs /proc/meminfo fuse.lxcfs rw 0 0\n"}, "lxc"),
        ({"proc/1/cgroup": "0::/init.scope\n"}, ""),
    ],
)
def test_each_kind_of_container_is_told_by_the_mark_it_leaves(
    tmp_path: Path, mark: dict[str, str], kind: str
) -> None:
    assert read_machine(a_tree(tmp_path, mark)).limits.container == kind


def test_this_machine_is_read_as_its_own_system_sees_it(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        facts = read_host(tmp_path / "not" / "there" / "yet", [port])
    assert facts.busy_ports == frozenset({port})
    assert facts.cpu.threads == os.cpu_count()
    assert facts.cpu.architecture == os.uname().machine
    assert facts.memory.total_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert facts.disk is not None
    assert facts.disk.path == str(tmp_path / "not" / "there" / "yet")
    assert facts.disk.total_bytes == shutil.disk_usage(tmp_path).total
    assert facts.limits.memlock_bytes == resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    assert (facts.uid, facts.system) == (os.getuid(), "Linux")
    assert HostFacts.model_validate_json(facts.model_dump_json()) == facts


def test_the_rate_of_a_disk_is_measured_and_nothing_stays_behind(tmp_path: Path) -> None:
    rate = measure_disk(tmp_path / "not yet")
    assert rate is None or rate > 0
    assert list(tmp_path.iterdir()) == []


def test_a_large_file_that_is_there_is_read_rather_than_one_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring_module, "SAMPLE_BYTES", 8192)
    monkeypatch.setattr(
        measuring_module, "_rate_of_a_new_file", lambda _folder: pytest.fail("wrote")
    )
    (tmp_path / "shard.gguf").write_bytes(os.urandom(16384))
    rate = measure_disk(tmp_path)
    assert rate is None or rate > 0


def test_a_file_system_that_refuses_direct_reads_has_no_known_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path, _flags: int) -> int:
        raise OSError(22, os.strerror(22))

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(measuring_module, "_large_file", lambda _folder: tmp_path / "shard")
    assert measure_disk(tmp_path) is None


def test_the_certificates_are_those_that_the_hosts_tools_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").touch()
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "ca.pem"))
    assert ca_bundle() == tmp_path / "ca.pem"
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "gone.pem"))
    assert ca_bundle() is None

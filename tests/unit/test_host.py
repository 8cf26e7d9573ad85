"""Reading a host: from trees of files such as the kernel shows, and once from this machine."""

import os
import resource
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.adapters.host import (
    ca_bundle,
    load_facts,
    measure_disk,
    read_host,
    read_machine,
    save_facts,
)
from orchestrator.adapters.host import measuring as measuring_module
from orchestrator.adapters.host.cards import read_cards
from orchestrator.adapters.host.commands import ask
from orchestrator.adapters.host.containers import read_docker
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.facts import Disk, Gpu, HostFacts

GIB = 1 << 30
HOSTS = Path(__file__).parents[1] / "fixtures" / "hosts"
# Of a host of 512 GiB: 536870912 kB = 2^29 kB = 2^39 bytes.
MEMINFO = (
    "MemTotal: 536870912 kB\nMemFree: 501000000 kB\nMemAvailable: 520000000 kB\nHugetlb: 0 kB\n"
)
AVAILABLE = 520_000_000 * 1024


def a_tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


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


def a_tool(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_a_tool_is_asked_in_english_within_bounds_and_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_tool(tmp_path, "speaks", 'echo "$LC_ALL"; exit 3')
    a_tool(tmp_path, "hangs", "exec sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    answer = ask("speaks", within_s=30)
    assert answer is not None
    assert (answer.text, answer.ok) == ("C\n", False)
    assert ask("hangs", within_s=0.1) is None
    assert ask("no-such-tool", within_s=1) is None


SMI = r"""
case "$*" in
  *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2;;
  --query-gpu=*) cat <<'END'
index, name, memory.total [MiB], memory.used [MiB], memory.free [MiB], persistence_mode, driver_version, pci.bus_id
0, Tesla V100-PCIE-32GB, 32510 MiB, 5038 MiB, 27472 MiB, Enabled, 470.223.02, 00000000:3B:00.0
END
  ;;
  *) cat "$TABLE";;
esac
"""


def test_cards_of_an_old_driver_are_asked_again_without_the_fields_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_tool(tmp_path / "bin", "nvidia-smi", SMI)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.setenv("TABLE", str(HOSTS / "31-v100-driver470-old-table" / "nvidia-smi.txt"))
    root = a_tree(tmp_path / "root", {"sys/bus/pci/devices/0000:3b:00.0/numa_node": "1\n"})
    cards = read_cards(root)
    assert (cards.driver_version, cards.driver_cuda) == ("470.223.02", "11.4")
    assert cards.gpus == (
        Gpu(
            index=0,
            name="Tesla V100-PCIE-32GB",
            compute_capability=(7, 0),
            memory_bytes=32510 << 20,
            memory_used_bytes=5038 << 20,
            memory_free_bytes=27472 << 20,
            mig=False,
            persistence=True,
            ecc_errors=0,
            numa_node=1,
        ),
    )


def test_cards_without_their_driver_are_counted_and_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("orchestrator.adapters.host.commands.WSL_TOOLS", str(tmp_path))
    assert read_cards(tmp_path).gpus == ()
    device = "sys/bus/pci/devices/0000:01:00.0"
    a_tree(tmp_path, {f"{device}/vendor": "0x10de\n", f"{device}/class": "0x030000\n"})
    assert read_cards(tmp_path).gpus == (Gpu(index=0),)
    a_tree(tmp_path, {"dev/dxg": ""})
    assert read_cards(tmp_path).gpus is None  # Windows does not say how many it lends


def test_docker_that_is_not_here_is_told_from_docker_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (read_docker(tmp_path).answers, read_docker(tmp_path).version) == (False, None)
    script = """
case "$1" in
  compose) echo "Docker Compose version v2.24.5";;
  buildx) echo "docker: 'buildx' is not a docker command." >&2; exit 1;;
  version) echo '{"Client":{"Version":"28.2.2"},"Server":null}'; exit 1;;
  info) echo '{"ServerVersion":"","ServerErrors":["permission denied"]}'; exit 1;;
esac"""
    a_tool(tmp_path / "bin", "docker", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    docker = read_docker(tmp_path)
    assert (docker.answers, docker.version, docker.compose_version) == (False, "28.2.2", "2.24.5")
    assert docker.buildx_version is None
    assert docker.nvidia_runtime is None


def test_a_description_of_the_cards_is_nothing_to_a_daemon_that_does_not_look_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
[ "$1" = info ] && echo '{"ServerVersion":"24.0","Runtimes":{"runc":{}}}'
[ "$1" = version ] && echo '{"Server":{"Version":"24.0"}}'"""
    a_tool(tmp_path / "bin", "docker", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    root = a_tree(tmp_path, {"etc/cdi/nvidia.yaml": "kind: nvidia.com/gpu\n"})
    assert read_docker(root).cdi is False


def test_cdi_takes_a_daemon_that_looks_for_it_and_a_description_of_the_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
[ "$1" = info ] && echo '{"ServerVersion":"27.0","Runtimes":{"runc":{}},"CDISpecDirs":["/etc/cdi"]}'
[ "$1" = version ] && echo '{"Server":{"Version":"27.0"}}'"""
    a_tool(tmp_path / "bin", "docker", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert read_docker(tmp_path).cdi is False
    a_tree(tmp_path, {"etc/cdi/nvidia.yaml": "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n"})
    docker = read_docker(tmp_path)
    assert (docker.cdi, docker.nvidia_runtime) == (True, False)


def test_saved_facts_are_read_back_and_name_no_user_and_no_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "rosalind")
    monkeypatch.setenv("HOME", "/srv/people/rosalind")
    monkeypatch.setattr(socket, "gethostname", lambda: "deep-thought.example.org")
    for path, shown in (
        ("/srv/people/rosalind/weights", "~/weights"),
        ("/home/rosalind/weights", "~/weights"),
        ("/home/another/weights", "~/weights"),
        ("/data/rosalind/deep-thought/weights", "/data/.../.../weights"),
        ("/data/weights", "/data/weights"),
    ):
        facts = read_machine().model_copy(update={"disk": Disk(path=path, free_bytes=1)})
        save_facts(tmp_path / "facts.json", facts)
        text = (tmp_path / "facts.json").read_text()
        assert not [word for word in ("rosalind", "another", "deep-thought") if word in text]
        assert load_facts(tmp_path / "facts.json", Path("weights")).facts == facts.model_copy(
            update={"disk": Disk(path=shown, free_bytes=1)}
        )


def test_saved_disks_name_no_user_either(tmp_path: Path) -> None:
    facts = HostFacts(disks=(Disk(path="/"), Disk(path="/home/rosalind")))
    save_facts(tmp_path / "facts.json", facts)
    assert "rosalind" not in (tmp_path / "facts.json").read_text()


def test_saved_facts_have_no_place_for_serial_numbers_addresses_or_ids(tmp_path: Path) -> None:
    save_facts(tmp_path / "facts.json", read_host(tmp_path, []))
    text = (tmp_path / "facts.json").read_text().lower()
    words = ("uuid", "serial", "mac", "address", "hostname", "user", "bus_id")
    assert not [word for word in words if f'"{word}' in text or f'{word}":' in text]


def test_a_folder_of_captured_outputs_is_read_as_facts() -> None:
    facts = load_facts(HOSTS / "36-3090-125gib", Path("weights")).facts
    assert facts.cpu.threads == 16
    assert facts.gpus is not None
    assert facts.gpus[0].name == "NVIDIA GeForce RTX 3090"


@pytest.mark.parametrize(
    ("text", "why"),
    [('{"cpu": {"sockets": "many"}}', "cpu.sockets"), ('{"cpus": 1}', "cpus"), ("", "JSON")],
)
def test_a_file_of_something_else_is_refused_with_the_reason(
    tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "facts.json").write_text(text)
    with pytest.raises(BadConfiguration) as refusal:
        load_facts(tmp_path / "facts.json", Path("weights"))
    assert why in refusal.value.why


def test_a_folder_without_captures_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.txt").touch()
    for path in (tmp_path, tmp_path / "missing.json"):
        with pytest.raises(BadConfiguration) as refusal:
            load_facts(path, Path("weights"))
        assert refusal.value.exit_code == 2
    with pytest.raises(BadConfiguration):
        save_facts(tmp_path / "no" / "facts.json", HostFacts())


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

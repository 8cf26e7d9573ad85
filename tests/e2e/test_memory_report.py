"""Where the engine's memory lies, as its own container reports it, on the kernel of this host."""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from e2e.scenario import ROOT, Appliance, eventually
from orchestrator.adapters.lookout import EngineLookout
from wire import Lock
from wire.numa import PageReport

LOCK = Lock.model_validate_json((ROOT / "configs/locks/demo.json").read_bytes())
ONLINE = Path("/sys/devices/system/node/has_memory")

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/numa_maps").exists(), reason="this kernel has no NUMA, so no memory policy"
)
on_one_node = pytest.mark.skipif(
    not ONLINE.exists() or ONLINE.read_text().strip() != "0", reason="asks for a host of one node"
)


@pytest.fixture
def report(appliance: Appliance) -> PageReport:
    found = EngineLookout(appliance.project).page_report()
    assert found is not None
    return found


Engine = Callable[..., Container]


@pytest.fixture
def an_engine(appliance: Appliance) -> Iterator[Engine]:
    """The stack's engine once more, by Docker alone, with other variables and capabilities."""
    template = appliance.running("inference")
    assert template is not None
    config = template.attrs["Config"]
    mounts = {
        mount["Source"]: {"bind": mount["Destination"], "mode": "ro"}
        for mount in template.attrs["Mounts"]
    }
    made: list[Container] = []
    with closing(docker.from_env()) as client:

        def make(cap_add: list[str], **variables: str) -> Container:
            container = client.containers.run(
                config["Image"],
                name=f"{appliance.project}-memory{len(made)}",
                environment=[*config["Env"], *(f"{k}={v}" for k, v in variables.items())],
                user=config["User"],
                volumes=mounts,
                cap_drop=["ALL"],
                cap_add=cap_add,
                security_opt=["no-new-privileges:true"],
                read_only=True,
                tmpfs={"/tmp": ""},
                network_mode="none",
                detach=True,
            )
            made.append(container)
            eventually(lambda: serves(container), "the engine serves")
            return container

        yield make
        for container in made:
            container.remove(force=True)


def serves(container: Container) -> bool:
    """By its own healthcheck: the log has its lines in pieces while the engine writes there too."""
    container.reload()
    assert container.status == "running", container.logs().decode()
    status, _ = container.exec_run(["python3", "-m", "llamacpp_engine.health"])
    return bool(status == 0)


def report_of(container: Container) -> PageReport:
    status, said = container.exec_run(["python3", "-m", "placing.report"])
    assert status == 0, said
    assert isinstance(said, bytes)
    return PageReport.model_validate_json(said)


def test_the_report_names_every_shard_of_the_lock_with_its_size(report: PageReport) -> None:
    sizes = {f"{LOCK.folder}/{file.path}": file.size_bytes for file in LOCK.files}
    assert {shard.path: shard.size_bytes for shard in report.shards} == sizes
    assert report.trouble == ""


def test_the_pages_are_those_that_the_kernel_has_in_memory_for_these_mappings(
    appliance: Appliance, report: PageReport
) -> None:
    container = appliance.running("inference")
    assert container is not None
    assert {shard.path: shard.mapped_bytes for shard in report.shards} == resident(container)


def resident(container: Container) -> Mapping[str, int]:
    """By another file of the kernel, /proc/PID/smaps: `Rss` of each mapping of a shard, added up."""
    code = "cat /proc/[0-9]*/smaps | grep -E '^[0-9a-f]+-|^Rss:' | grep -A1 -F /weights/"
    status, said = container.exec_run(["sh", "-c", code])
    assert status == 0, said
    assert isinstance(said, bytes)
    total: dict[str, int] = {}
    path = ""
    for line in said.decode().splitlines():
        if "/weights/" in line:
            path = line.partition("/weights/")[2]
        elif line.startswith("Rss:"):
            total[path] = total.get(path, 0) + int(line.split()[1]) * 1024
    return total


@on_one_node
def test_on_a_host_of_one_node_all_of_it_lies_there(report: PageReport) -> None:
    assert set(report.shard_bytes) == set(report.own_bytes) == {0}


def test_the_stacks_engine_may_set_a_memory_policy(report: PageReport) -> None:
    assert report.has_sys_nice is True
    assert report.may_set_policy is True


def test_the_engines_process_inherits_the_policy_that_was_set_before_it_began(
    an_engine: Engine,
) -> None:
    container = an_engine(["SYS_NICE"], MEMORY_POLICY="interleave", MEMORY_NODES="0")
    assert "memory policy: interleave, nodes 0" in container.logs().decode()
    found = report_of(container)
    assert found.policies == ("interleave:0",)
    assert len(found.shards) == len(LOCK.files)


def test_without_sys_nice_the_policy_is_refused_and_told_and_the_engine_serves_all_the_same(
    an_engine: Engine,
) -> None:
    container = an_engine([], MEMORY_POLICY="interleave", MEMORY_NODES="0")
    said = container.logs().decode()
    assert "warning: the weights lie where the kernel puts them" in said
    assert "lacks SYS_NICE" in said
    found = report_of(container)
    assert found.policies == ("default",)
    assert found.has_sys_nice is False
    assert found.may_set_policy is False


def test_what_the_kernel_itself_says_of_the_refusal_is_eperm(appliance: Appliance) -> None:
    """238 is set_mempolicy on x86_64; no capability is needed for it, so the filter refuses."""
    template = appliance.running("inference")
    assert template is not None
    code = (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True); "
        "print(libc.syscall(238, 0, None, 0), ctypes.get_errno())"
    )
    image = template.attrs["Config"]["Image"]
    base = ["docker", "run", "--rm", "--cap-drop=ALL", "--entrypoint=python3"]
    for more, answer in ((["--cap-add=SYS_NICE"], "0 0"), ([], "-1 1")):
        command = [*base, *more, image, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == answer

"""The budget of the test model against the engine: its own report, and the memory it really takes."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from e2e.scenario import ROOT, Appliance
from fitting import a_profile, settings_of, tinyseek
from orchestrator.core.budget import Share, budget_of
from orchestrator.core.facts import HostFacts
from orchestrator.core.inventory import Inventory, WeightClass
from orchestrator.core.placement import place
from orchestrator.core.profile import Profile
from orchestrator.core.terms import is_repacked

MIB = 1 << 20
NOT_THE_ENGINES = {"chat page", "gateway", "left to the system"}
PROMPT = "word " * 1600  # a token each: most of a slot's context, so that every buffer is used

# Loads a model as the container does, but with the engine's own report, and ends.
REPORT = """
import os, sys
from pathlib import Path
from pydantic import SecretStr
import xllamacpp
from llamacpp_engine.launch import configure
from llamacpp_engine.settings import read_settings
params = xllamacpp.CommonParams()
configure(params, read_settings(os.environ), Path(sys.argv[1]), SecretStr("unused"))
params.verbosity = 4
server = xllamacpp.Server(params)
# A server that is taken down before its loop has begun waits for that loop for ever.
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
"""

# Of all processes but this one and health checks: what is their own, by PSS, since a fork shares it;
# and of each mapped file what the process with most of it has, since they all share it.
MEMORY = r"""
import glob, json, os, re
own, files = 0, {}
for folder in glob.glob("/proc/[0-9]*"):
    try:
        command = open(folder + "/cmdline").read()
        lines = open(folder + "/smaps").read().splitlines()
    except OSError:
        continue
    if folder == "/proc/%d" % os.getpid() or "llamacpp_engine.health" in command:
        continue
    here, name = {}, ""
    for line in lines:
        words = line.split()
        if re.fullmatch("[0-9a-f]+-[0-9a-f]+", words[0]):
            name = words[5] if len(words) > 5 else ""
        elif words[0] == "Rss:" and name.startswith("/"):
            here[name] = here.get(name, 0) + int(words[1]) * 1024
        elif words[0] == "Pss:" and not name.startswith("/"):
            own += int(words[1]) * 1024
    for name, size in here.items():
        files[name] = max(size, files.get(name, 0))
print(json.dumps({"own": own, "files": files}))
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    with closing(docker.from_env()) as client:
        yield client


@pytest.fixture(scope="module")
def inference(appliance: Appliance) -> Container:
    found = appliance.running("inference")
    assert found is not None
    return found


def engine_share(profile: Profile, inventory: Inventory, **chosen: Any) -> dict[str, int]:
    """Term -> bytes of what the engine itself takes."""
    settings, facts = settings_of(profile, **chosen), HostFacts()
    placement = place(profile, settings, facts, inventory)
    (ram,) = budget_of(profile, settings, placement, inventory, facts, 0).ram
    return sizes(ram)


def sizes(share: Share) -> dict[str, int]:
    return {t.name: t.size_bytes for t in share.terms if t.name not in NOT_THE_ENGINES}


def report_of(
    engine: docker.DockerClient, inference: Container, quantisation: str, **chosen: int
) -> str:
    """What the engine in this image says when it loads the test model of that quantisation."""
    config = inference.attrs["Config"]
    environment = dict(pair.partition("=")[::2] for pair in config["Env"])
    said = engine.containers.run(
        config["Image"],
        ["-c", REPORT, f"/model/TinySeek-{quantisation}-00001-of-00003.gguf"],
        entrypoint="python3",
        user=config["User"],
        environment=environment | {name.upper(): str(value) for name, value in chosen.items()},
        volumes={
            str(ROOT / "tests" / "fixtures" / "tinyseek" / quantisation): {
                "bind": "/model",
                "mode": "ro",
            }
        },
        network_mode="none",
        stderr=True,
        remove=True,
    )
    assert isinstance(said, bytes)
    return said.decode(errors="replace")


def mib_of(report: str, what: str) -> float:
    """The amount of one line, or the sum of several of the same kind."""
    found = re.findall(rf"{what} *= *([0-9.]+) MiB", report)
    return sum(map(float, found))


@pytest.mark.parametrize(
    ("quantisation", "context", "slots"),
    [("Q4_K_M", 2048, 2), ("Q4_K_M", 8192, 1), ("Q5_K_M", 2048, 2), ("Q5_K_M", 4096, 4)],
)
def test_terms_are_what_the_engine_reports(
    engine: docker.DockerClient, inference: Container, quantisation: str, context: int, slots: int
) -> None:
    report = report_of(engine, inference, quantisation, context_tokens=context, slots=slots)
    inventory = tinyseek(quantisation)
    terms = engine_share(a_profile("demo"), inventory, context_tokens=context, slots=slots)
    weights = sum(terms[kind.value] for kind in WeightClass)
    assert weights == inventory.total_bytes
    assert f"{weights / MIB:.2f}" == f"{mib_of(report, 'file size'):.2f}"
    repacked = sum(weight.size_bytes for weight in inventory.weights if is_repacked(weight))
    assert f"{repacked / MIB:.2f}" == f"{mib_of(report, 'CPU_REPACK model buffer size'):.2f}"
    assert f"{terms['KV cache'] / MIB:.2f}" == f"{mib_of(report, 'CPU KV buffer size'):.2f}"
    computes = mib_of(report, "CPU compute buffer size")
    assert terms["compute buffer"] / MIB == pytest.approx(computes, rel=0.1)
    output = mib_of(report, "output buffer size")
    assert terms["output buffer"] / MIB == pytest.approx(output, abs=0.01)  # shown in hundredths


def test_the_engines_memory_is_what_the_budget_says(
    appliance: Appliance, inference: Container
) -> None:
    profile, inventory = a_profile("demo"), tinyseek()
    slots = settings_of(profile).slots
    body: dict[str, Any] = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8}
    with ThreadPoolExecutor(slots) as pool:
        answers = list(pool.map(lambda _: appliance.ask(**body), range(2 * slots)))
    assert [answer.status_code for answer in answers] == [200] * len(answers)

    status, said = inference.exec_run(["python3", "-c", MEMORY])
    assert isinstance(said, bytes)
    assert status == 0, said.decode()
    memory = json.loads(said)
    mapped = sum(size for name, size in memory["files"].items() if name.endswith(".gguf"))
    stays = [weight.size_bytes for weight in inventory.weights if not is_repacked(weight)]
    # Between what stays mapped and all of the files: llama.cpp lets go of the rest in whole runs.
    assert sum(stays) <= mapped <= sum(inventory.file_bytes.values()) + 3 * 4096

    # Beyond `stays`, mapped pages belong to weights packed anew, which the kernel may take back.
    found = memory["own"] + sum(memory["files"].values()) - (mapped - sum(stays))
    terms = engine_share(profile, inventory)
    assert sum(terms.values()) == pytest.approx(found, rel=0.1), (terms, memory)

"""A second `up` while the host's free memory has changed: the engine stays where it runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hosts
from fitting import ROOT, a_profile, deepseek_r1, settings_of, tinyseek
from orchestrator.choosing import first_advice
from orchestrator.core.advice import Advice, advise
from orchestrator.core.facts import HostFacts
from orchestrator.core.inventory import Inventory
from orchestrator.core.memory_policy import MemoryPolicy, Standing, standing_of
from orchestrator.core.placement import place
from orchestrator.core.plan import Folders, stack_env
from orchestrator.core.profile import Profile
from orchestrator.place import settings_without_profile

R1, DEMO = a_profile("deepseek-r1-q4km"), a_profile("demo")
AMX = hosts.amx_sapphire_rapids()  # two nodes of 503 GiB
TWO = hosts.rtx4090_480gb_two_sockets()  # two of 236 GiB
ANY = Path("/any")
FOLDERS = Folders(
    locks=ANY,
    job=ANY,
    source=ANY,
    weights=ANY,
    secrets=ANY,
    control=ANY,
    placement=ANY,
    usage=ANY,
    ca_bundle=None,
)


def with_free(facts: HostFacts, shares: list[float]) -> HostFacts:
    """`shares`: of each node's memory, what is free; all of it is what is available."""
    nodes = tuple(
        node.model_copy(update={"memory_free_bytes": int((node.memory_bytes or 0) * share)})
        for node, share in zip(facts.nodes or (), shares, strict=True)
    )
    available = sum(node.memory_free_bytes or 0 for node in nodes)
    memory = facts.memory.model_copy(update={"available_bytes": available})
    return facts.model_copy(update={"nodes": nodes, "memory": memory})


def advised(
    profile: Profile, facts: HostFacts, inventory: Inventory, standing: Standing | None
) -> Advice:
    return advise(profile, (), facts, inventory, 0, standing=standing)


FREE = st.lists(st.floats(0, 1), min_size=2, max_size=2)


@pytest.mark.parametrize(
    ("profile", "inventory", "host"),
    [(R1, deepseek_r1(), AMX), (R1, deepseek_r1(), TWO), (DEMO, tinyseek(), TWO)],
    ids=["R1, 2 x 503 GiB", "R1, 2 x 236 GiB", "demo, 2 x 236 GiB"],
)
@given(before=FREE, now=FREE)
def test_whatever_is_free_the_serving_profile_gets_the_same_environment(
    profile: Profile, inventory: Inventory, host: HostFacts, before: list[float], now: list[float]
) -> None:
    first = advised(profile, with_free(host, before), inventory, None)
    env = stack_env(first, host, FOLDERS, {})
    facts = with_free(host, now)
    second = advised(profile, facts, inventory, standing_of(env, profile.name))
    assert stack_env(second, facts, FOLDERS, {}) == env


def placed(standing: Standing | None, facts: HostFacts, **chosen: Any) -> tuple[Any, ...]:
    found = place(R1, settings_of(R1, **chosen), facts, deepseek_r1(), standing)
    return found.policy, found.nodes


SECOND = Standing(MemoryPolicy.ONE_NODE, (1,))
BOTH = Standing(MemoryPolicy.INTERLEAVE, (0, 1))


def test_it_stays_on_the_node_where_it_runs_and_the_plan_says_so() -> None:
    found = place(R1, settings_of(R1), AMX, deepseek_r1(), SECOND)
    assert (found.policy, found.nodes) == (MemoryPolicy.ONE_NODE, (1,))
    assert "it runs so already (nodes 1)" in found.reasons["policy"]
    assert placed(BOTH, AMX) == (MemoryPolicy.INTERLEAVE, (0, 1))


def test_it_moves_where_it_can_not_stay() -> None:
    # 402 GB do not fit into 253, and there is no node 2.
    assert placed(SECOND, TWO) == (MemoryPolicy.INTERLEAVE, (0, 1))
    gone = Standing(MemoryPolicy.INTERLEAVE, (0, 1, 2))
    assert placed(gone, AMX) == (MemoryPolicy.ONE_NODE, (0,))


def test_what_the_operator_says_counts_more() -> None:
    assert placed(SECOND, AMX, memory_policy="interleave") == (MemoryPolicy.INTERLEAVE, (0, 1))
    assert placed(SECOND, AMX, memory_policy="one node") == (MemoryPolicy.ONE_NODE, (1,))
    assert placed(SECOND, AMX, inference_cpus="0-3") == (MemoryPolicy.ONE_NODE, (0,))


def test_what_only_an_operator_chooses_does_not_stay_when_nobody_does() -> None:
    assert placed(Standing(MemoryPolicy.REPLICATE, (0, 1)), AMX) == placed(None, AMX)
    assert placed(Standing(MemoryPolicy.LOCAL, ()), AMX) == placed(None, AMX)


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({"STACK_PROFILE": "demo"}, None),
        ({}, None),
        ({"STACK_MEMORY_NODES": "x"}, None),
        ({"STACK_MEMORY_NODES": ""}, None),
        ({"STACK_MEMORY_POLICY": "elsewhere"}, None),
        ({"STACK_MEMORY_NODES": "0,1"}, Standing(MemoryPolicy.ONE_NODE, (0, 1))),
    ],
)
def test_only_what_this_profile_was_started_with_stands(
    env: dict[str, str], found: Standing | None
) -> None:
    whole = {"STACK_PROFILE": R1.name, "STACK_MEMORY_POLICY": "one node"}
    given = whole | {"STACK_MEMORY_NODES": "1"} | env if env else {}
    assert standing_of(given, R1.name) == found


@pytest.mark.parametrize(("serves", "nodes"), [(R1.name, (1,)), ("demo", (0,))])
def test_it_is_read_from_what_the_stack_was_started_with(
    tmp_path: Path, serves: str, nodes: tuple[int, ...]
) -> None:
    layers, _, where = settings_without_profile(tmp_path, {"state_dir": "state"})
    where = replace(where, root=ROOT)
    where.state.mkdir()
    where.env_file.write_text(
        f"STACK_PROFILE='{serves}'\nSTACK_MEMORY_POLICY='one node'\nSTACK_MEMORY_NODES='1'\n",
        encoding="utf-8",
    )
    assert first_advice(R1, layers, where, AMX).placement.nodes == nodes


def test_a_limit_that_is_enough_stays_when_the_headers_come_to_be_known() -> None:
    # Of a file in a wheel nothing is known before it is here: its published figures ask for more.
    facts, demo = hosts.no_gpu_small(), a_profile("demo")
    known = advise(demo, (), facts, tinyseek(), 0).placement.memory_limit_bytes
    policy, nodes = MemoryPolicy.LOCAL, (0,)
    for before, after in ((known + 1, known + 1), (known - 1, known), (2 * known + 1, known)):
        standing = Standing(policy, nodes, before)
        found = advise(demo, (), facts, tinyseek(), 0, standing=standing)
        assert found.placement.memory_limit_bytes == after


def test_prometheus_stays_on_its_port_until_somebody_says_otherwise(tmp_path: Path) -> None:
    def settled(**flags: object) -> tuple[bool, int]:
        _, settings, _ = settings_without_profile(tmp_path, {"state_dir": "state"} | flags)
        return settings.metrics, settings.prometheus_port

    assert settled() == (False, 9090)
    (tmp_path / "state").mkdir()
    started = "COMPOSE_PROFILES='metrics'\nSTACK_PROMETHEUS_PORT='9191'\n"
    (tmp_path / "state" / "stack.env").write_text(started, encoding="utf-8")
    assert settled() == (True, 9191)
    assert settled(prometheus_port="9292") == (True, 9292)
    assert settled(metrics="false")[0] is False
    (tmp_path / "appliance.toml").write_text("metrics = false\n", encoding="utf-8")
    assert settled()[0] is False


def test_prometheus_that_was_off_stays_off(tmp_path: Path) -> None:
    (tmp_path / "stack.env").write_text("STACK_PROMETHEUS_PORT='9191'\n", encoding="utf-8")
    _, settings, _ = settings_without_profile(tmp_path, {"state_dir": "."})
    assert (settings.metrics, settings.prometheus_port) == (False, 9090)

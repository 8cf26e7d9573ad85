"""Threads, pins, memory policy, limits and cards, on hosts whose numbers are known."""

from typing import Any

import pytest

import hosts
from fitting import a_profile, deepseek_r1, settings_of, tinyseek
from orchestrator.core.budget import budget_of
from orchestrator.core.facts import Cpu, HostFacts, Limits, NumaNode
from orchestrator.core.inventory import Inventory
from orchestrator.core.pins import format_cpus, parse_cpus
from orchestrator.core.placement import MemoryPolicy, Placement, place
from orchestrator.core.profile import Profile

R1, DEMO, AMX = a_profile("deepseek-r1-q4km"), a_profile("demo"), a_profile("deepseek-r1-amxint4")


def placed(
    profile: Profile, facts: HostFacts, inventory: Inventory | None = None, **chosen: Any
) -> Placement:
    return place(profile, settings_of(profile, **chosen), facts, inventory)


# --- memory policy


@pytest.mark.parametrize(
    ("facts", "policy", "nodes"),
    [
        (hosts.rtx4090_480gb_two_sockets(), MemoryPolicy.INTERLEAVE, (0, 1)),
        (hosts.four_nodes_128gb_each(), MemoryPolicy.INTERLEAVE, (0, 1, 2, 3)),
        (hosts.amx_sapphire_rapids(), MemoryPolicy.ONE_NODE, (0,)),  # 503 GiB a node
        (hosts.two_cards_24gb(), MemoryPolicy.LOCAL, (0,)),
        (HostFacts(), MemoryPolicy.LOCAL, ()),
    ],
    ids=["2 x 236 GiB", "4 x 125 GiB", "2 x 503 GiB", "1 node", "unknown"],
)
def test_weights_lie_on_one_node_where_they_fit_and_else_on_all(
    facts: HostFacts, policy: MemoryPolicy, nodes: tuple[int, ...]
) -> None:
    found = placed(R1, facts, deepseek_r1())
    assert (found.policy, found.nodes) == (policy, nodes)


def test_the_reason_for_a_policy_has_the_numbers() -> None:
    found = placed(R1, hosts.rtx4090_480gb_two_sockets(), deepseek_r1())
    assert "402.2 GB needed, 250.2 GB on node" in found.reasons["policy"]


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [("one node", (0,)), ("interleave", (0, 1)), ("replicate", (0, 1)), ("local", ())],
)
def test_an_operators_policy_wins(asked: str, nodes: tuple[int, ...]) -> None:
    found = placed(R1, hosts.amx_sapphire_rapids(), deepseek_r1(), memory_policy=asked)
    assert found.policy.value == asked
    assert found.nodes == nodes
    assert "as set" in found.reasons["policy"]


def test_copies_by_node_are_refused_to_an_engine_that_can_make_none() -> None:
    found = placed(DEMO, hosts.h200(), tinyseek(), memory_policy="replicate")
    assert found.policy is MemoryPolicy.ONE_NODE
    assert "llamacpp has no copy by node" in found.reasons["policy"]


def test_nodes_without_cpus_hold_neither_weights_nor_threads() -> None:
    found = placed(DEMO, hosts.aarch64_grace(), tinyseek())
    assert found.nodes == (0,)
    assert found.policy is MemoryPolicy.LOCAL


def test_sglangs_pools_take_every_node_since_each_holds_its_part_of_the_experts() -> None:
    found = placed(AMX, hosts.amx_sapphire_rapids())
    assert found.nodes == (0, 1)
    assert found.policy is MemoryPolicy.INTERLEAVE


# --- threads


@pytest.mark.parametrize(
    ("facts", "threads"),
    [
        (hosts.rtx4090_480gb_two_sockets(), 62),  # 64 cores with two threads each
        (hosts.four_nodes_128gb_each(), 62),
        (hosts.amx_sapphire_rapids(), 54),  # 56 cores on the node that holds it all
        (hosts.no_gpu_small(), 2),  # too few to leave one out
        (HostFacts(), 1),
        (HostFacts(cpu=Cpu(physical_cores=8, threads=16)), 6),
        (HostFacts(cpu=Cpu(physical_cores=6, threads=12)), 5),  # too few to leave two out
    ],
)
def test_threads_beside_a_gpu_are_physical_cores_less_two(facts: HostFacts, threads: int) -> None:
    assert placed(R1, facts, deepseek_r1()).threads == threads


def test_a_limit_on_cpus_counts_where_there_are_more_cores() -> None:
    # 72 cores on two nodes; the container is granted 16.
    found = placed(R1, hosts.container_64gb_limit_on_512gb(), deepseek_r1())
    assert found.threads == 14
    assert "a limit grants 16" in found.reasons["threads"]


def test_threads_and_cpus_that_an_operator_sets_are_taken_as_they_are() -> None:
    found = placed(DEMO, hosts.no_gpu_small(), tinyseek(), threads=9, inference_cpus="0-1")
    assert (found.threads, found.cpuset) == (9, "0-1")


def test_fewer_cpus_of_an_operator_make_fewer_threads() -> None:
    found = placed(DEMO, hosts.no_amx_epyc(), tinyseek(), inference_cpus="0-15")
    assert found.threads == 15


# --- CPUs


@pytest.mark.parametrize(
    ("facts", "cpuset"),
    [
        (hosts.rtx4090_480gb_two_sockets(), "0-63"),  # 64-127 are their siblings
        (hosts.amx_sapphire_rapids(), "0-55"),
        (hosts.no_gpu_small(), ""),
        (HostFacts(), ""),
    ],
)
def test_an_engine_that_pins_nothing_gets_one_cpu_of_every_core(
    facts: HostFacts, cpuset: str
) -> None:
    assert placed(R1, facts, deepseek_r1()).cpuset == cpuset


def test_numbers_that_do_not_tell_siblings_apart_pin_nothing() -> None:
    # One node, 24 cores, CPUs 0-47: siblings may be 0 and 24, or 0 and 1.
    found = placed(R1, hosts.rtx4090_256gb(), deepseek_r1())
    assert found.cpuset == ""
    assert "can't be told" in found.reasons["cpuset"]


def test_sglang_pins_itself_so_it_may_use_all() -> None:
    assert placed(AMX, hosts.amx_sapphire_rapids()).cpuset == ""


def test_cpus_outside_of_a_containers_own_are_left_out() -> None:
    node = NumaNode(id=0, cpus=tuple(range(8)), physical_cores=8)
    facts = HostFacts(nodes=(node,), limits=Limits(cpuset=(2, 3, 5)))
    found = placed(DEMO, facts, tinyseek())
    assert (found.cpuset, found.threads) == ("2-3,5", 3)


@pytest.mark.parametrize("text", ["0", "0-3", "0-3,8,10-11", ""])
def test_cpus_are_read_and_written_as_docker_spells_them(text: str) -> None:
    assert format_cpus(parse_cpus(text)) == text


# --- cards


def test_one_card_is_used_of_two_unless_the_profile_wants_both() -> None:
    both = hosts.two_cards_24gb()
    assert placed(R1, both).gpus == (0,)
    assert placed(a_profile("deepseek-r1-q4km-2gpu"), both).gpus == (0, 1)
    assert placed(R1, both, gpus="1").gpus == (1,)
    # Its rules know one card: the budget must not be told half on each of two.
    found = placed(R1, both, gpus="1,0")
    assert found.gpus == (1,)
    assert found.reasons["gpus"] == "of gpus = 1,0 as many as its rules use: 1"
    assert placed(a_profile("deepseek-r1-q4km-2gpu"), both, gpus="1,1,0").gpus == (1, 0)


def test_the_largest_card_is_taken_also_while_the_engine_itself_fills_it() -> None:
    first, second = hosts.two_cards_24gb().gpus or ()
    busy = second.model_copy(update={"memory_bytes": 48 * 10**9, "memory_free_bytes": 10**9})
    facts = hosts.two_cards_24gb().model_copy(update={"gpus": (first, busy)})
    assert placed(R1, facts).gpus == (1,)


def test_of_two_nodes_alike_the_first_is_taken_whichever_has_more_room_today() -> None:
    profile, facts = a_profile("deepseek-r1-distill-70b"), hosts.rtx4090_480gb_two_sockets()
    first, second = facts.nodes or ()
    less = first.model_copy(update={"memory_free_bytes": (first.memory_free_bytes or 0) - 10**9})
    other = facts.model_copy(update={"nodes": (less, second)})
    assert placed(profile, facts).nodes == placed(profile, other).nodes == (0,)


def test_cards_that_are_not_known_are_asked_of_docker_all_the_same() -> None:
    """Its driver was updated under it, or is slow: without a card the engine only says it has none."""
    facts = hosts.two_cards_24gb().model_copy(update={"gpus": None})
    assert placed(R1, facts).gpus == (0,)
    assert placed(a_profile("deepseek-r1-q4km-2gpu"), facts).gpus == (0, 1)
    assert "not known" in placed(R1, facts).reasons["gpus"]
    assert placed(R1, facts.model_copy(update={"gpus": ()})).gpus == ()


def test_cards_that_mig_cuts_are_left_out() -> None:
    found = placed(R1, hosts.mig_a30())
    assert found.gpus == ()
    assert "MIG" in found.reasons["gpus"]


def test_an_engine_of_the_cpu_takes_no_card_and_no_experts_for_it() -> None:
    found = placed(DEMO, hosts.h200(), tinyseek(), gpu_experts=4)
    assert (found.gpus, found.gpu_experts, found.shm_bytes) == ((), 0, 64 << 20)


# --- limits and lengths


@pytest.mark.parametrize(
    ("profile", "facts", "inventory"),
    [
        (R1, hosts.rtx4090_480gb_two_sockets(), deepseek_r1()),
        (DEMO, hosts.no_gpu_small(), tinyseek()),
        (AMX, hosts.amx_sapphire_rapids(), None),
    ],
    ids=["R1", "demo", "published figures"],
)
def test_the_limit_holds_all_of_the_budget_and_more(
    profile: Profile, facts: HostFacts, inventory: Inventory | None
) -> None:
    settings = settings_of(profile)
    found = place(profile, settings, facts, inventory)
    budget = budget_of(profile, settings, found, inventory, facts, 0)
    need = sum(share.need_bytes for share in budget.ram)
    assert found.memory_limit_bytes >= need * 1.05  # page cache of what is read beside the weights
    assert found.memory_limit_bytes >= profile.needs.memory.least_bytes
    assert "page cache counts" in found.reasons["memory_limit_bytes"]


def test_the_limit_holds_every_copy_of_the_experts() -> None:
    facts = hosts.amx_sapphire_rapids()
    found = placed(R1, facts, deepseek_r1(), memory_policy="replicate")
    assert found.memory_limit_bytes > 2 * 393_983_557_632


def test_an_operators_limit_is_taken_as_it_is() -> None:
    found = placed(DEMO, hosts.no_gpu_small(), tinyseek(), inference_memory_bytes=10**9)
    assert found.memory_limit_bytes == 10**9


def test_a_reply_leaves_room_for_a_prompt() -> None:
    found = placed(R1, HostFacts(), context_tokens=1024, max_tokens=4096)
    assert found.max_tokens == 1023


def test_the_cache_is_as_long_as_the_context_of_all_slots() -> None:
    found = placed(DEMO, HostFacts(), context_tokens=2048, slots=3)
    assert (found.kv_tokens, found.slots, found.context_tokens) == (6144, 3, 2048)


def test_every_field_but_the_arguments_has_its_reason() -> None:
    fields = set(Placement.__dataclass_fields__) - {"arguments", "reasons"}
    for profile in (R1, DEMO, AMX):
        for facts in (HostFacts(), *(make() for make in hosts.ALL)):
            reasons = placed(profile, facts).reasons
            assert fields == set(reasons)
            assert all(reasons.values())


def test_a_card_that_the_engine_does_not_use_is_named() -> None:
    one = placed(DEMO, hosts.rtx4090_256gb()).reasons["gpus"]
    assert one == "the NVIDIA GeForce RTX 4090 is not used: llamacpp runs demo on the CPU"
    two = placed(DEMO, hosts.two_cards_24gb()).reasons["gpus"]
    assert two == "2 cards are not used: llamacpp runs demo on the CPU"


def test_the_core_that_is_left_is_for_what_is_there() -> None:
    facts = hosts.rtx4090_256gb()
    without = placed(DEMO, facts).reasons["threads"]
    assert without.endswith("one left for the other services")
    with_card = placed(R1, facts, deepseek_r1()).reasons["threads"]
    assert "two left for the GPU's thread and the other services" in with_card


@pytest.mark.parametrize("name", ["demo", "qwen3-30b-a3b-q4km"])
def test_weights_go_to_the_node_of_the_cpus_that_this_machine_may_use(name: str) -> None:
    facts = hosts.rtx4090_480gb_two_sockets()
    limits = facts.limits.model_copy(update={"cpuset": tuple(range(32, 40))})
    found = placed(a_profile(name), facts.model_copy(update={"limits": limits}))
    assert (found.nodes, found.cpuset) == ((1,), "32-39")


def test_weights_go_to_the_node_of_the_cpus_that_the_operator_chose() -> None:
    facts, demo = hosts.rtx4090_480gb_two_sockets(), a_profile("demo")
    second = placed(demo, facts, inference_cpus="32-63")
    assert (second.policy, second.nodes, second.threads) == (MemoryPolicy.ONE_NODE, (1,), 31)
    assert placed(demo, facts, inference_cpus="0-3,32-35", memory_policy="interleave").nodes == (
        0,
        1,
    )
    assert placed(demo, facts, inference_cpus="500-600").nodes == (0,)

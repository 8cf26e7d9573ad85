"""The plan against the pages that were found, and what `status` says of it."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from orchestrator.core.placement import MemoryPolicy
from orchestrator.core.spread import Intended, judge
from wire.numa import PageReport, Shard, page_report

GB = 10**9
RECORDED = Path(__file__).parents[2] / "images/wire/tests/recorded"
AGAIN = (
    "start again with the cache dropped: python3 -m orchestrator down && "
    "sudo sysctl vm.drop_caches=1 && python3 -m orchestrator up"
)


def planned(policy: MemoryPolicy, *nodes: int) -> Intended:
    return Intended(policy=policy, nodes=nodes)


def found(
    node_bytes: Mapping[int, int],
    own: Mapping[int, int] | None = None,
    *,
    policy: str = "",
    may: bool | None = True,
    has: bool | None = True,
) -> PageReport:
    shard = Shard(path="m.gguf", size_bytes=None, page_bytes=4096, node_bytes=node_bytes)
    return PageReport(
        shards=(shard,) if node_bytes else (),
        own_bytes=own or {},
        policies=(policy,) if policy else (),
        may_set_policy=may,
        has_sys_nice=has,
    )


def test_all_on_the_one_node_of_a_small_host() -> None:
    spread = judge(planned(MemoryPolicy.LOCAL, 0), found({0: 12 * GB}, policy="default"))
    assert spread.words == "weights: 100 % on node 0, as planned"
    assert spread.as_planned is True
    assert spread.warnings == ()


def test_halves_on_two_nodes() -> None:
    spread = judge(
        planned(MemoryPolicy.INTERLEAVE, 0, 1),
        found({0: 201 * GB, 1: 203 * GB}, policy="interleave:0-1"),
    )
    assert spread.words == "weights: 50 % on node 0, 50 % on node 1, as planned"
    assert spread.planned == {0: 0.5, 1: 0.5}
    assert spread.warnings == ()


def test_the_real_pages_of_an_engine_on_two_nodes_are_as_planned() -> None:
    text = (RECORDED / "numa_maps-two-nodes.txt").read_text(encoding="utf-8")
    report = page_report(text, PurePosixPath("/weights"), {})
    spread = judge(planned(MemoryPolicy.INTERLEAVE, 0, 1), report)
    assert spread.as_planned is True
    assert spread.warnings == ()


def test_weights_that_the_download_left_on_one_node_are_told_with_what_to_do() -> None:
    spread = judge(
        planned(MemoryPolicy.INTERLEAVE, 0, 1),
        found({0: 93 * GB, 1: 7 * GB}, policy="interleave:0-1"),
    )
    assert spread.as_planned is False
    said = "weights: planned half on each of nodes 0,1, found 93 % on node 0, 7 % on node 1"
    assert spread.words == said
    assert spread.warnings == (f"{said}: {AGAIN}",)


@pytest.mark.parametrize(
    ("policy", "nodes", "node_bytes", "words"),
    [
        (
            MemoryPolicy.ONE_NODE,
            (1,),
            {0: 100 * GB},
            "weights: planned all on node 1, found 100 % on node 0",
        ),
        (
            MemoryPolicy.INTERLEAVE,
            (0, 1, 2, 3),
            {0: 40 * GB, 1: 20 * GB, 2: 20 * GB, 3: 20 * GB},
            (
                "weights: planned 1/4 on each of nodes 0,1,2,3, found 40 % on node 0, "
                "20 % on node 1, 20 % on node 2, 20 % on node 3"
            ),
        ),
    ],
)
def test_what_was_planned_and_what_was_found_stand_side_by_side(
    policy: MemoryPolicy, nodes: tuple[int, ...], node_bytes: Mapping[int, int], words: str
) -> None:
    assert judge(planned(policy, *nodes), found(node_bytes)).words == words


def test_a_small_model_that_lies_in_few_large_pieces_is_no_reason_to_warn() -> None:
    # 6 MiB in pieces of 2 MiB can't be halved.
    pieces = {0: 4 << 20, 1: 2 << 20}
    assert judge(planned(MemoryPolicy.INTERLEAVE, 0, 1), found(pieces)).as_planned is True


# --- what the engine holds beside its files ---


def test_copied_weights_and_buffers_on_the_wrong_node_are_told_too() -> None:
    spread = judge(
        planned(MemoryPolicy.INTERLEAVE, 0, 1),
        found({0: 50 * GB, 1: 50 * GB}, {0: 30 * GB}, policy="interleave:0-1"),
    )
    assert spread.as_planned is True
    (warning,) = spread.warnings
    assert warning.startswith("the engine's own memory (KV cache, buffers, copied weights)")
    assert "found 100 % on node 0" in warning


@pytest.mark.parametrize(
    "own", [pytest.param({0: 9 * GB}, id="a tenth"), pytest.param({0: 100 << 20}, id="a program")]
)
def test_what_the_engine_holds_beside_is_no_matter_where_it_is_little(own: dict[int, int]) -> None:
    shards = {0: 50 * GB, 1: 50 * GB} if own[0] > GB else {0: 6 << 20, 1: 6 << 20}
    assert judge(planned(MemoryPolicy.INTERLEAVE, 0, 1), found(shards, own)).warnings == ()


def test_copies_on_each_node_are_the_engines_own_memory() -> None:
    spread = judge(
        planned(MemoryPolicy.REPLICATE, 0, 1), found({0: 400 * GB}, {0: 400 * GB, 1: 400 * GB})
    )
    assert spread.words == "copies of the weights: 50 % on node 0, 50 % on node 1, as planned"
    assert spread.warnings == ()


# --- rights ---


def test_a_lost_sys_nice_is_told_with_the_cost_and_the_cure() -> None:
    spread = judge(
        planned(MemoryPolicy.INTERLEAVE, 0, 1),
        found({0: 100 * GB}, policy="default", may=False, has=False),
    )
    rights, weights = spread.warnings
    assert "has lost SYS_NICE" in rights
    assert "threads wait for memory of other nodes" in rights
    assert "cap_add: [SYS_NICE] in compose.yaml" in rights
    assert weights.endswith("it can't be mended before the engine may set a memory policy")


def test_on_one_node_a_lost_sys_nice_costs_nothing() -> None:
    spread = judge(planned(MemoryPolicy.LOCAL, 0), found({0: GB}, may=False, has=False))
    (warning,) = spread.warnings
    assert "on one node this costs nothing" in warning


def test_a_seccomp_profile_of_the_operators_own_is_told_from_a_lost_capability() -> None:
    spread = judge(planned(MemoryPolicy.LOCAL, 0), found({0: GB}, may=False, has=True))
    (warning,) = spread.warnings
    assert "it has SYS_NICE, so a seccomp profile forbids it" in warning
    assert "allow set_mempolicy" in warning


def test_a_policy_that_is_not_the_planned_one_is_told_though_the_pages_lie_well() -> None:
    spread = judge(planned(MemoryPolicy.ONE_NODE, 1), found({1: 100 * GB}, policy="interleave:0-1"))
    assert spread.as_planned is True
    (warning,) = spread.warnings
    assert "runs under the memory policy interleave:0-1, planned bind on node 1" in warning


# --- nothing to compare ---


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (None, "the engine does not run, or gives no report"),
        (PageReport(trouble="no process here maps a file of /weights"), "no process here maps"),
        (found({}), "the engine has none in memory yet"),
    ],
)
def test_without_pages_nothing_is_claimed(report: PageReport | None, why: str) -> None:
    spread = judge(planned(MemoryPolicy.INTERLEAVE, 0, 1), report)
    assert spread.as_planned is None
    assert spread.words.startswith(f"weights: not known where they lie: {why}")


def test_a_host_whose_nodes_are_unknown_has_no_plan_to_compare_with() -> None:
    spread = judge(planned(MemoryPolicy.LOCAL), found({0: 60 * GB, 1: 40 * GB}))
    assert spread.as_planned is None
    assert spread.words == "weights: 60 % on node 0, 40 % on node 1, where the kernel put them"

"""Terms of disk, RAM and VRAM, compared with what engines said and with sums done by hand."""

import json
from pathlib import Path

import pytest

import hosts
from fitting import a_profile, deepseek_r1, settings_of, tinyseek
from orchestrator.core import vram
from orchestrator.core.budget import Budget, Share, Term, budget_of
from orchestrator.core.checks import cards
from orchestrator.core.checks.finding import Severity
from orchestrator.core.facts import HostFacts, Memory, NumaNode
from orchestrator.core.inventory import Inventory
from orchestrator.core.placement import place
from orchestrator.core.profile import Profile

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30
R1, R1_TWO_CARDS = a_profile("deepseek-r1-q4km"), a_profile("deepseek-r1-q4km-2gpu")
DEMO, AMX = a_profile("demo"), a_profile("deepseek-r1-amxint4")


def a_budget(
    profile: Profile,
    facts: HostFacts,
    inventory: Inventory | None,
    missing_bytes: int = 0,
    **chosen: object,
) -> Budget:
    settings = settings_of(profile, **chosen)
    placement = place(profile, settings, facts, inventory)
    return budget_of(profile, settings, placement, inventory, facts, missing_bytes)


def term(share: Share, name: str) -> Term:
    return next(term for term in share.terms if term.name == name)


def within_a_percent(mib: float) -> object:
    return pytest.approx(mib * 2**20, rel=0.01)


# --- llama.cpp, against its own log (xllamacpp 2026.10.11549, 2 threads)

WEIGHTS = (
    "routed experts",
    "shared experts",
    "attention",
    "dense layers",
    "embedding",
    "output",
    "norms and routers",
)


@pytest.mark.parametrize(
    ("quantisation", "shown_mib"),
    [("Q4_K_M", "11.51"), ("Q5_K_M", "13.12")],
    ids=["Q4_K_M", "Q5_K_M"],
)
def test_weights_are_those_the_engine_says_the_files_hold(
    quantisation: str, shown_mib: str
) -> None:
    (ram,) = a_budget(DEMO, hosts.no_gpu_small(), tinyseek(quantisation)).ram
    weights = [term for term in ram.terms if term.name in WEIGHTS]
    assert sum(term.size_bytes for term in weights) == tinyseek(quantisation).total_bytes
    assert f"{sum(term.size_bytes for term in weights) / 2**20:.2f}" == shown_mib
    assert {term.certainty for term in weights} == {"exact"}


@pytest.mark.parametrize(
    ("context", "slots", "kv_mib", "compute_mib", "output_mib"),
    [
        (2048, 1, 20.00, 11.02, 0.03125),
        (2048, 2, 40.00, 11.02, 0.0625),
        (8192, 1, 80.00, 17.02, 0.03125),
        (4096, 4, 160.00, 13.02, 0.125),
    ],
)
def test_buffers_are_those_the_engine_reports(
    context: int, slots: int, kv_mib: float, compute_mib: float, output_mib: float
) -> None:
    (ram,) = a_budget(
        DEMO, hosts.no_gpu_small(), tinyseek(), context_tokens=context, slots=slots
    ).ram
    assert term(ram, "KV cache").size_bytes == kv_mib * 2**20
    assert term(ram, "compute buffer").size_bytes == within_a_percent(compute_mib)
    assert term(ram, "output buffer").size_bytes == output_mib * 2**20


def test_what_is_packed_anew_is_what_the_engine_reports() -> None:
    # "CPU_REPACK model buffer size = 6.12 MiB" for Q4_K_M; no such line for Q5_K_M.
    def packed(quantisation: str) -> int:
        (ram,) = a_budget(DEMO, hosts.no_gpu_small(), tinyseek(quantisation)).ram
        texts = [term.formula for term in ram.terms if term.name in WEIGHTS]
        found = (text.rpartition(" + ")[2].partition(" packed")[0] for text in texts)
        return sum(int(number.replace(",", "")) for number in found)

    assert f"{packed('Q4_K_M') / 2**20:.2f}" == "6.12"
    assert packed("Q5_K_M") == 0


@pytest.mark.parametrize(
    ("context", "slots", "measured"),
    [
        # Anonymous memory by PSS + mapped weights and libraries by RSS, after full prompts in all
        # slots: 90.7 + 9.5 + 33.0 MB, and 224.2 + 9.5 + 33.0 MB.
        (2048, 2, 133_200_000),
        (4096, 4, 266_700_000),
    ],
)
def test_the_engines_memory_is_predicted_within_a_tenth(
    context: int, slots: int, measured: int
) -> None:
    (ram,) = a_budget(
        DEMO, hosts.no_gpu_small(), tinyseek(), context_tokens=context, slots=slots
    ).ram
    others = {"chat page", "gateway", "left to the system"}
    engine = sum(term.size_bytes for term in ram.terms if term.name not in others)
    assert engine == pytest.approx(measured, rel=0.1)


# --- DeepSeek-R1 on hosts


def test_r1_is_spread_over_two_sockets_that_hold_half_of_it_each() -> None:
    budget = a_budget(R1, hosts.rtx4090_480gb_two_sockets(), deepseek_r1())
    # A projection of a layer's experts: 256 x 7168 x 2048 numbers. Q4_K packs 256 in 144 bytes,
    # Q6_K in 210. Of 58 layers gate and up are Q4_K, down is Q6_K in 27 and Q4_K in 31.
    q4, q6 = 2_113_929_216, 3_082_813_440
    experts = 58 * 2 * q4 + 27 * q6 + 31 * q4
    assert [share.where for share in budget.ram] == ["RAM node 0", "RAM node 1"]
    found = [term(share, "routed experts") for share in budget.ram]
    assert sum(part.size_bytes for part in found) == experts == 393_983_557_632
    assert found[0].certainty == "derived"
    assert found[0].formula.startswith("1/2 of 393,983,557,632")
    # Each node: 236 GiB, of which 3 of the 6 GiB in use for good.
    assert [share.have_bytes for share in budget.ram] == [233 * GIB, 233 * GIB]
    assert all(share.fits for share in budget.shares)


def test_r1_on_one_card_is_the_sum_of_its_parts_and_near_what_upstream_says() -> None:
    budget = a_budget(R1, hosts.rtx4090_480gb_two_sockets(), deepseek_r1())
    (card,) = budget.vram
    assert card.where == "GPU 0"
    # Marlin, 4.5 bits: q_a, q_b, kv_a and output of 61 layers. BF16: kv_b, 512 x 32768 each, and
    # what turns the last layer's output into tokens, as configs/placements has it.
    linear = 7168 * 1536 + 1536 * 24_576 + 7168 * 576 + 16_384 * 7168
    attention = linear * 61 * 9 // 16 + 61 * 512 * 32_768 * 2
    assert term(card, "attention").size_bytes == attention == 7_891_202_048
    assert term(card, "shared experts").size_bytes == 3 * 7168 * 2048 * 58 * 9 // 16
    assert term(card, "output").size_bytes == 129_280 * 7168 * 2
    assert term(card, "KV cache").size_bytes == 8192 * 70_272
    assert term(card, "CUDA context, kernels and graph").size_bytes == 869 * 2**20
    # "at least 14GB VRAM", says DeepseekR1_V3_tutorial.md.
    serving = [one.size_bytes for one in card.terms if one.name != vram.LOADING]
    assert sum(serving) == pytest.approx(14e9, rel=0.12)
    assert card.fits


def test_r1_needs_most_of_a_card_while_its_output_layer_is_loaded() -> None:
    (card,) = a_budget(R1, hosts.rtx4090_480gb_two_sockets(), deepseek_r1()).vram
    kept = ("attention", "shared experts", "dense layers", "norms and routers")
    others = sum(term(card, name).size_bytes for name in kept)
    # 129,280 x 7168 numbers in 32 bits and in 16, beside all other weights and CUDA's context.
    assert card.need_bytes == others + 6 * 129_280 * 7168 + 869 * 2**20
    assert card.need_bytes == pytest.approx(16.9e9, rel=0.002)
    # A longer context takes more than that once it is loaded: then there is nothing to add.
    (long,) = a_budget(
        R1, hosts.rtx4090_480gb_two_sockets(), deepseek_r1(), context_tokens=65_536
    ).vram
    assert not [one for one in long.terms if one.name == vram.LOADING]
    assert long.need_bytes == sum(one.size_bytes for one in long.terms)


def test_a_card_without_the_output_layer_has_room_for_what_packing_takes() -> None:
    first = a_budget(R1_TWO_CARDS, hosts.two_cards_24gb(), deepseek_r1()).vram[0]
    kept = ("attention", "shared experts", "dense layers", "norms and routers")
    weights = sum(term(first, name).size_bytes for name in kept)
    # A dense layer's 18,432 x 7168 numbers in five arrays of 32 bits, where 4.5 bits are kept.
    beyond = 18_432 * 7168 * 20 - 18_432 * 7168 * 9 // 16
    assert first.need_bytes == weights + beyond + 869 * 2**20


def test_a_card_that_is_too_small_to_load_on_is_told_no_shorter_context() -> None:
    (card,) = hosts.rtx4090_480gb_two_sockets().gpus or ()
    # An RTX A4000 with 16,000 MiB free, 16.8 GB; R1 serves in 15.7 and needs 16.9 to load.
    small = card.model_copy(update={"memory_free_bytes": 16_000 * 2**20})
    facts = hosts.rtx4090_480gb_two_sockets().model_copy(update={"gpus": (small,)})
    placement = place(R1, settings_of(R1), facts, deepseek_r1())
    found = cards.vram(R1, placement, a_budget(R1, facts, deepseek_r1()), facts)
    assert (found.severity, found.needed) == (Severity.BLOCK, "16.9 GB")
    assert "while the model loads, whatever ORCH_CONTEXT_TOKENS is" in found.next_step.en
    context = {"context_tokens": 65_536}
    long = a_budget(R1, facts, deepseek_r1(), **context)
    refused = cards.vram(R1, placement, long, facts)
    assert "lower ORCH_CONTEXT_TOKENS" in refused.next_step.en


@pytest.mark.parametrize("run", [0, 1], ids=["Marlin", "without Marlin"])
def test_torch_had_as_much_in_use_while_loading_as_the_rule_says(run: int) -> None:
    report = json.loads((ROOT / "tests/gpu/measured/marlin-loading.json").read_text())
    memory = report["runs"][run]["memory"]
    output = memory["terms"]["VRAM"]["output"]
    others = memory["torch"]["weights_bytes"] - output
    most = others + vram.LOADING_BYTES * output // 2
    assert most == pytest.approx(memory["torch"]["most_loading_in_use_bytes"], rel=0.001)


def test_without_marlin_all_weights_on_the_card_take_16_bits() -> None:
    options = {"rules": "single-gpu-no-marlin", "chunk_tokens": 64}
    plain = a_profile("demo-gpu", kt_legacy=options)
    (card,) = a_budget(plain, hosts.h200(), tinyseek()).vram
    matrices = [w for w in tinyseek().weights if w.layer is not None and len(w.shape) > 1]
    attention = sum(w.shape[0] * w.shape[1] for w in matrices if ".attn_" in w.name)
    assert term(card, "attention").size_bytes >= attention * 2
    assert term(card, "attention").size_bytes < attention * 2 * 1.001


def test_a_256_gb_host_is_told_how_much_is_lacking() -> None:
    (ram,) = a_budget(R1, hosts.rtx4090_256gb(), deepseek_r1()).ram
    assert ram.have_bytes == 246 * GIB
    assert ram.fits is False
    assert ram.need_bytes == pytest.approx(402.2e9, rel=0.001)


def test_four_nodes_of_128_gb_hold_a_quarter_each() -> None:
    budget = a_budget(R1, hosts.four_nodes_128gb_each(), deepseek_r1())
    needs = [share.need_bytes for share in budget.ram]
    assert len(needs) == 4
    assert max(needs) - min(needs) < 20  # odd bytes
    local = a_budget(R1, hosts.four_nodes_128gb_each(), deepseek_r1(), memory_policy="local")
    assert sum(needs) == sum(share.need_bytes for share in local.ram)
    assert sum(needs) == pytest.approx(402.2e9, rel=0.001)
    assert [share.fits for share in budget.ram] == [True] * 4
    quarter = term(budget.ram[3], "routed experts").size_bytes
    assert quarter == 393_983_557_632 // 4


def test_of_four_nodes_one_alone_would_not_hold_it() -> None:
    budget = a_budget(R1, hosts.four_nodes_128gb_each(), deepseek_r1(), memory_policy="one node")
    (node,) = budget.ram
    assert node.where == "RAM node 0"
    assert node.fits is False


def test_a_copy_on_every_node_needs_the_experts_once_a_node() -> None:
    budget = a_budget(
        R1, hosts.rtx4090_480gb_two_sockets(), deepseek_r1(), memory_policy="replicate"
    )
    assert [term(share, "routed experts").size_bytes for share in budget.ram] == [
        393_983_557_632
    ] * 2
    assert [share.fits for share in budget.ram] == [False, False]
    assert term(budget.ram[0], "embedding").size_bytes == 129_280 * 7168 * 2 // 2


def test_two_cards_share_layers_and_cache_and_each_has_a_context_of_its_own() -> None:
    one = a_budget(R1, hosts.two_cards_24gb(), deepseek_r1()).vram
    two = a_budget(R1_TWO_CARDS, hosts.two_cards_24gb(), deepseek_r1()).vram
    assert [share.where for share in one] == ["GPU 0"]
    assert [share.where for share in two] == ["GPU 0", "GPU 1"]
    # 61 layers: 0-29 and 30-60, as upstream's DeepSeek-V3-Chat-multi-gpu.yaml and our two-gpus.
    kv = [term(share, "KV cache").size_bytes for share in two]
    assert kv == [8192 * 1152 * 30, 8192 * 1152 * 31]
    split = sum(term(share, "attention").size_bytes for share in two)
    assert split == pytest.approx(term(one[0], "attention").size_bytes, abs=1)
    assert [t.name for t in two[0].terms].count("output") == 0
    assert term(two[1], "output").size_bytes == term(one[0], "output").size_bytes
    context = "CUDA context, kernels and graph"
    assert term(two[0], context) == term(two[1], context)


def test_a_number_of_experts_that_kt_legacy_is_never_told_takes_no_vram() -> None:
    """Which of its experts lie on a card its rules say, whole layers of them."""
    none = a_budget(R1, hosts.h200(), deepseek_r1())
    assert a_budget(R1, hosts.h200(), deepseek_r1(), gpu_experts=8) == none


# --- documented figures


def test_without_an_inventory_the_published_figures_stand_in() -> None:
    budget = a_budget(AMX, hosts.amx_sapphire_rapids(), None)
    engine = [term(share, "engine, as published") for share in budget.ram]
    assert sum(part.size_bytes for part in engine) == 350_000_000_000
    assert {part.certainty for part in engine} == {"documented"}
    assert AMX.needs.memory.source in engine[0].formula
    (card,) = budget.vram
    assert card.need_bytes == 27_000_000_000
    assert card.terms[0].certainty == "documented"


# --- disk


def test_disk_has_what_is_missing_the_images_and_what_is_left_free() -> None:
    share = a_budget(R1, hosts.rtx4090_480gb_two_sockets(), None, 404_430_187_616).disk
    assert [(part.name, part.size_bytes) for part in share.terms] == [
        ("weights to fetch", 404_430_187_616),
        ("images", 6_720_000_000),
        ("left free", GIB),
    ]
    assert share.have_bytes == 2 * 10**12


def test_where_no_weights_are_missing_the_disk_needs_only_what_is_left_free() -> None:
    share = a_budget(DEMO, hosts.no_gpu_small(), tinyseek()).disk
    assert [part.name for part in share.terms] == ["left free"]


# --- what a host has


def test_page_cache_does_not_take_room_from_a_node() -> None:
    # 100 GiB each. Node 0 holds 60 GiB of files, node 1 has 20 GiB taken; 10 GiB are in use for
    # good: three quarters of it, by the proportion of what is taken, on node 0.
    nodes = (
        NumaNode(id=0, memory_bytes=100 * GIB, memory_free_bytes=40 * GIB, cpus=(0,)),
        NumaNode(id=1, memory_bytes=100 * GIB, memory_free_bytes=80 * GIB, cpus=(1,)),
    )
    memory = Memory(total_bytes=200 * GIB, available_bytes=190 * GIB, free_bytes=120 * GIB)
    facts = HostFacts(memory=memory, nodes=nodes)
    budget = a_budget(DEMO, facts, tinyseek(), memory_policy="interleave")
    assert [share.have_bytes for share in budget.ram] == [int(92.5 * GIB), int(97.5 * GIB)]


def test_a_containers_limit_counts_and_not_the_machine_around_it() -> None:
    budget = a_budget(R1, hosts.container_64gb_limit_on_512gb(), deepseek_r1())
    assert [share.have_bytes for share in budget.ram] == [32 * GIB, 32 * GIB]
    assert [share.fits for share in budget.ram] == [False, False]


def test_a_small_host_without_a_gpu_holds_the_test_model() -> None:
    budget = a_budget(DEMO, hosts.no_gpu_small(), tinyseek())
    (ram,) = budget.ram
    assert ram.where == "RAM"
    assert ram.have_bytes == 22 * GIB
    assert ram.fits
    assert budget.vram == ()


def test_what_the_host_does_not_say_is_unknown_and_a_card_it_lacks_is_nothing() -> None:
    unknown = a_budget(R1, HostFacts(), deepseek_r1())
    assert [share.fits for share in unknown.shares] == [None, None, None]
    (card,) = a_budget(R1, hosts.no_gpu_small(), deepseek_r1()).vram
    assert card.have_bytes == 0
    assert card.fits is False

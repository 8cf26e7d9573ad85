"""llama.cpp with all but the routed experts on a card: when, what it takes, and what is started."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hosts
from fitting import a_profile, deepseek_r1, deepseek_r1_newer, settings_of, tinyseek
from judged import CONFIGS
from orchestrator import prepare
from orchestrator.choosing import Considered
from orchestrator.core.advice import Advice, advise
from orchestrator.core.checks.finding import Severity
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.facts import Docker, HostFacts
from orchestrator.core.images import BASE, RECIPES, Images, a_build, architectures
from orchestrator.core.inventory import Inventory
from orchestrator.core.placement import DOCKER_SHM_BYTES, Placement, place
from orchestrator.core.plan import COMPOSE_FILES, BaseSystem, Folders, stack_env
from orchestrator.core.recommend import Pick, tokens_per_s
from orchestrator.core.settings import Layer, Settings
from orchestrator.core.terms import memory_terms
from orchestrator.core.vram import card_terms
from orchestrator.place import Place

UD = a_profile("deepseek-r1-0528-ud-iq1s")
HOST = hosts.rtx4090_480gb_two_sockets()
LOCAL = CONFIGS.parent
FOLDERS = Folders(
    **dict.fromkeys(
        ("locks", "job", "source", "weights", "secrets", "control", "usage", "placement"), LOCAL
    ),
    ca_bundle=None,
)


def placed(facts: HostFacts, held: Inventory | None, **chosen: Any) -> Placement:
    return place(UD, settings_of(UD, **chosen), facts, held)


def advised(facts: HostFacts, held: Inventory | None = None, **chosen: Any) -> Advice:
    layers = (Layer(values=chosen, origins=dict.fromkeys(chosen, "test")),)
    return advise(UD, layers, facts, held or deepseek_r1_newer(), 0)


def changed(**card: Any) -> HostFacts:
    (gpu,) = HOST.gpus or ()
    return HOST.model_copy(update={"gpus": (gpu.model_copy(update=card),)})


def amounts(held: Inventory, cards: int = 1) -> tuple[Mapping[str, int], ...]:
    settings = settings_of(UD, context_tokens=4096, slots=1)
    return tuple(
        {term.name: term.size_bytes for term in card}
        for card in card_terms(UD, settings, held, cards)
    )


# --- when a card is used


def test_a_card_with_room_is_used_and_the_reason_has_the_numbers() -> None:
    found = placed(HOST, deepseek_r1_newer(), context_tokens=4096)
    assert found.gpus == (0,)
    assert found.reasons["gpus"] == (
        "card 0 has 25.2 GB free, 15.1 are needed; the routed experts stay in RAM"
    )
    # It shares no memory, on a card neither.
    assert found.shm_bytes == DOCKER_SHM_BYTES


def test_one_core_more_is_left_beside_a_card() -> None:
    one_node = hosts.two_cards_24gb()
    beside, alone = placed(one_node, deepseek_r1_newer()), placed(one_node, None)
    assert (beside.gpus, alone.gpus) == ((0,), ())
    assert beside.threads == alone.threads - 1


@pytest.mark.parametrize(
    ("facts", "held", "why"),
    [
        (changed(memory_free_bytes=12 * 10**9), deepseek_r1_newer(), "12.0 GB free of the 15.1"),
        # Files of early 2025 make llama.cpp cache whole keys and values: 20 GB for 4096 tokens.
        (HOST, deepseek_r1(), "25.2 GB free of the 36.9"),
        (HOST, None, "is not known before its files are"),
        (
            changed(compute_capability=(7, 5)),
            deepseek_r1_newer(),
            "older than the engine's kernels",
        ),
        (changed(compute_capability=None), deepseek_r1_newer(), "older than the engine's kernels"),
        (changed(mig=True), deepseek_r1_newer(), "cut by MIG"),
        (
            HOST.model_copy(update={"driver_cuda": "12.8"}),
            deepseek_r1_newer(),
            "the driver knows CUDA 12.8 and not 13.0",
        ),
        (
            HOST.model_copy(update={"docker": Docker(nvidia_runtime=False, cdi=False)}),
            deepseek_r1_newer(),
            "Docker can't give a container the card",
        ),
        (
            HOST.model_copy(update={"docker": Docker()}),
            deepseek_r1_newer(),
            "whether Docker can give a container the card is not known",
        ),
        (HOST.model_copy(update={"gpus": None}), deepseek_r1_newer(), "cards are not known"),
        (hosts.no_gpu_small(), deepseek_r1_newer(), "the host has no card"),
    ],
)
def test_where_no_card_can_be_used_it_runs_on_the_cpu_and_says_why(
    facts: HostFacts, held: Inventory | None, why: str
) -> None:
    found = placed(facts, held, context_tokens=4096)
    assert found.gpus == ()
    assert why in found.reasons["gpus"]
    assert found.reasons["gpus"].endswith(f"{UD.name} runs on the CPU")


def test_two_cards_are_used_where_one_is_too_small() -> None:
    found = placed(hosts.two_cards_24gb(), deepseek_r1(), context_tokens=4096)
    assert found.gpus == (0, 1)
    assert placed(hosts.two_cards_24gb(), deepseek_r1_newer()).gpus == (0,)


def test_a_profile_that_does_not_ask_for_a_card_gets_none() -> None:
    plain = a_profile("deepseek-r1-distill-7b")
    found = place(plain, settings_of(plain), HOST, deepseek_r1_newer())
    assert found.gpus == ()


def test_an_operators_card_is_taken_and_refused_by_the_checks_where_it_does_not_do() -> None:
    small = changed(memory_free_bytes=12 * 10**9)
    advice = advised(small, gpus="0")
    assert advice.placement.gpus == (0,)
    assert [found.check for found in advice.blockers if found.check == "vram"] == ["vram"]
    old = HOST.model_copy(update={"driver_cuda": "12.8"})
    assert "driver" in {found.check for found in advised(old, gpus="0").blockers}
    elder = changed(compute_capability=(7, 5))
    assert "compute-capability" in {found.check for found in advised(elder, gpus="0").blockers}
    without = HOST.model_copy(update={"docker": Docker(nvidia_runtime=False, cdi=False)})
    assert "toolkit" in {found.check for found in advised(without, gpus="0").blockers}


def test_beside_the_cpu_way_a_card_that_does_not_do_stops_nothing() -> None:
    old = HOST.model_copy(update={"driver_cuda": "12.8"})
    findings = {found.check: found for found in advised(old).findings}
    for check in ("gpu-count", "vram", "driver", "compute-capability"):
        assert findings[check].severity is Severity.OK


# --- what it takes


def test_vram_of_r1_adds_up_term_by_term() -> None:
    (found,) = amounts(deepseek_r1_newer())
    # 4096 tokens x 576 numbers x 61 layers x 2 bytes.
    assert found["KV cache"] == 4096 * 576 * 61 * 2
    # 7168 x 129,280 numbers of Q6_K: 210 bytes for 256.
    assert found["output"] == 7168 * 129_280 * 210 // 256
    # A copy of the largest tensor, in Q6_K: 256 experts x 7168 x 2048 numbers, 210 bytes for 256. For
    # each of 512 tokens 8 experts take 7168 + 2048 numbers of 4 bytes, and the mask has 4096 of 2.
    least = 7168 * 2048 * 210 + 512 * (8 * (7168 + 2048) * 4 + 4096 * 2)
    assert least < found["compute buffer"] < 1.03 * least
    assert "routed experts" not in found
    assert "embedding" not in found


def test_without_fused_attention_whole_keys_are_cached_and_scores_are_converted() -> None:
    (older,), (newer,) = amounts(deepseek_r1()), amounts(deepseek_r1_newer())
    # 512 tokens x 128 heads x (4096 scores + 128 values) x 2 bytes, of which a twentieth more is taken.
    assert older["converted for cuBLAS"] == 512 * 128 * (4096 + 128) * 2 * 105 // 100
    assert "converted for cuBLAS" not in newer
    # 128 heads x (192 + 128) in the place of 576.
    assert older["KV cache"] == 4096 * 128 * 320 * 61 * 2


def test_two_cards_hold_together_what_one_would() -> None:
    one, (first, second) = amounts(deepseek_r1_newer()), amounts(deepseek_r1_newer(), 2)
    for name in ("attention", "shared experts", "KV cache", "norms and routers"):
        assert first[name] + second[name] == one[0][name]
    # The output counts as a layer after the last: the second card has 30 of 61 and this one.
    assert "output" not in first
    assert second["KV cache"] == one[0]["KV cache"] * 30 // 61


def test_layers_are_dealt_out_as_llamacpp_does_it() -> None:
    """Its rule: layer `i` is on the first card whose part of all ends beyond i / (layers + 1)."""
    first, second = amounts(tinyseek(), 2)
    # Of 4 layers and the output: 0, 1/5 and 2/5 are below a half; 3/5 and the output are not.
    assert first["KV cache"] == 3 * second["KV cache"]
    assert "output" in second


def test_beside_a_card_ram_holds_the_experts_and_the_embedding_and_no_cache() -> None:
    settings = settings_of(UD)
    found = {t.name: t for t in memory_terms(UD, settings, deepseek_r1_newer(), on_card=True)}
    cpu = {t.name: t for t in memory_terms(UD, settings, deepseek_r1_newer())}
    assert found["routed experts"].size_bytes == cpu["routed experts"].size_bytes
    assert {"KV cache", "attention", "output"} & found.keys() == set()
    assert "packed anew" not in found["routed experts"].formula


def test_ram_is_judged_by_what_is_left_in_it() -> None:
    """The profile's published figure, 199.9 GB, is for the CPU alone."""
    advice = advised(HOST, tinyseek())
    needed = sum(share.need_bytes for share in advice.budget.ram)
    memory = next(found for found in advice.findings if found.check == "memory")
    assert memory.needed == f"{needed / 1e9:.1f} GB"


def test_beside_a_card_the_cores_read_routed_experts_only() -> None:
    # 8 of 256 experts of 393,983,557,632 bytes are read for a token, at 5.4 GB/s a core.
    advice = advised(HOST)
    assert advice.placement.gpus == (0,)
    cores = HOST.cpu.physical_cores
    assert cores
    rate = tokens_per_s(advice, HOST)
    assert rate == pytest.approx(cores * 5.4e9 / (393_983_557_632 * 8 / 256))


# --- what is started


def test_the_stack_gets_the_card_by_the_same_file_as_every_engine() -> None:
    advice = advised(HOST)
    env = stack_env(advice, HOST, FOLDERS, {"inference": "image:1"})
    assert env[COMPOSE_FILES] == "compose.yaml:configs/compose/nvidia.yaml"
    assert env["STACK_CUDA_DEVICES"] == "0"
    turned = advised(hosts.two_cards_24gb(), gpus="1,0")
    assert [share.where for share in turned.budget.vram] == ["GPU 1", "GPU 0"]
    env = stack_env(turned, hosts.two_cards_24gb(), FOLDERS, {"inference": "image:1"})
    assert (env["STACK_GPU_DEVICES"], env["STACK_CUDA_DEVICES"]) == ("1,0", "1,0")
    on_cpu = advised(hosts.no_gpu_small())
    assert COMPOSE_FILES not in stack_env(on_cpu, hosts.no_gpu_small(), FOLDERS, {})


@pytest.mark.parametrize(
    ("engine", "cards", "recipe"),
    [
        ("llamacpp", "", "inference-llamacpp"),
        ("llamacpp", "89", "inference-llamacpp-cuda"),
        ("kt-legacy", "89", "inference-kt-legacy"),
    ],
)
def test_llamacpp_has_an_image_for_the_cpu_and_one_for_cards(
    engine: str, cards: str, recipe: str
) -> None:
    assert Images(engine, cards).of_service()["inference"] == recipe
    assert recipe in RECIPES


def test_the_image_for_cards_is_compiled_for_the_hosts_own() -> None:
    recipe = RECIPES["inference-llamacpp-cuda"]
    assert recipe.for_cards
    assert not RECIPES["inference-llamacpp"].for_cards
    assert not BASE.for_cards
    # Two of a kind and one of another: 8.9 and 12.0, as nvcc calls them.
    assert architectures([(12, 0), (8, 9), (8, 9)]) == "89 120"
    tags = {a_build(recipe, "0", {"CUDA_ARCHITECTURES": cards}).ref for cards in ("86", "89")}
    assert len(tags) == 2


def test_the_build_is_told_which_cards(tmp_path: Path) -> None:
    place = Place(
        root=LOCAL, state=tmp_path, secrets=tmp_path, weights=tmp_path, configs=LOCAL / "configs"
    )
    base = BaseSystem(ref="rootfs:1", from_registry=False)
    builds = {
        build.recipe.name: build
        for build in prepare._builds(place, base, Images("llamacpp", "89"), Settings(), (1, 1))
    }
    assert "inference-llamacpp" not in builds
    told = builds["inference-llamacpp-cuda"].build_args
    assert told["CUDA_ARCHITECTURES"] == "89"
    assert all(
        "CUDA_ARCHITECTURES" not in b.build_args for n, b in builds.items() if "cuda" not in n
    )


def test_how_long_compiling_takes_is_said_before_it_begins() -> None:
    assert "hour" in RECIPES["inference-llamacpp-cuda"].takes


def test_a_card_of_unknown_generation_is_refused_before_an_hour_of_compiling() -> None:
    facts = changed(compute_capability=None)
    advice = advised(facts, gpus="0")
    considered = Considered(layers=(), pick=Pick(UD.name, "test"), facts=facts, advice=advice)
    with pytest.raises(BadConfiguration) as refused:
        prepare._images_of(considered)
    assert "can't be compiled for the cards 0" in refused.value.what
    known = replace(considered, facts=HOST, advice=advised(HOST, gpus="0"))
    assert prepare._images_of(known) == Images("llamacpp", "89")
    assert prepare._images_of(replace(known, advice=advised(hosts.no_gpu_small()))).cards == ""

"""llama.cpp's budget on a card, beside what llama.cpp itself reserved for the same files.

MiB as its log has them. Of two layers and of TinySeek: an H200's log. Of three: of the same in
tests/gpu/measured. The others: its scheduler and its allocator, asked on a device that computes
nothing (`reserve.cpp`), which come within 2 MiB of what they reserved on the H200.
"""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import pytest

from fitting import a_profile, settings_of, tinyseek
from gpu import figures
from gpu.synthetic_model import Shape, header_and_size
from orchestrator.core.inventory import Inventory, inventory_of
from orchestrator.core.terms import MIB, Term, memory_terms
from orchestrator.core.vram import card_terms
from wire.gguf import read_header

UD = a_profile("deepseek-r1-ud-iq1s")


def held(**shape: Any) -> Inventory:
    head, size = header_and_size(Shape(**shape))
    return inventory_of({"wide.gguf": (read_header(BytesIO(head)), size)})


def on_cards(of: Inventory, context: int, cards: int = 1, slots: int = 1) -> list[dict[str, int]]:
    settings = settings_of(UD, context_tokens=context, slots=slots)
    return [by_name(card) for card in card_terms(UD, settings, of, cards)]


def in_ram(of: Inventory, context: int) -> dict[str, int]:
    settings = settings_of(UD, context_tokens=context, slots=1)
    return by_name(memory_terms(UD, settings, of, on_card=True))


def by_name(terms: tuple[Term, ...]) -> dict[str, int]:
    return {term.name: term.size_bytes for term in terms}


def wide_reports() -> list[tuple[str, Mapping[str, Any]]]:
    report = figures.kept("llamacpp")
    assert report is not None
    return [(name, form) for name, form in report.items() if name.startswith("wide ")]


@pytest.mark.parametrize("name", [name for name, _ in wide_reports()])
def test_the_budget_of_three_wide_layers_is_what_an_h200_took_and_little_more(name: str) -> None:
    report = dict(wide_reports())[name]
    of = held(layers=3, newer="newer" in name)
    (card,) = on_cards(of, report["context"])
    logged = report["vram"]["log_mib"]
    assert 1.0 < sum(card.values()) / report["vram"]["found_bytes"] < 1.25
    assert 1.0 <= card["compute buffer"] / (logged["CUDA0 compute"] * MIB) < 1.03
    in_log = pytest.approx(logged["CUDA_Host compute"], abs=0.01)
    assert in_ram(of, report["context"])["compute buffer"] / MIB == in_log


def test_both_forms_were_measured() -> None:
    assert {name for name, _ in wide_reports()} >= {"wide older 16384", "wide newer 16384"}


@pytest.mark.parametrize(
    ("context", "found", "logged"),
    [(4096, 4_728_029_184, 1287.01), (16_384, 10_390_339_584, 4767.01)],
)
def test_no_experts_are_copied_where_only_the_last_layer_has_any(
    context: int, found: int, logged: float
) -> None:
    """It is computed for the one token whose output is wanted. The copy would take 2940 MiB more."""
    (card,) = on_cards(held(layers=2), context)
    assert 1.0 < card["compute buffer"] / (logged * MIB) < 1.13
    assert 1.0 < sum(card.values()) / found < 1.25


@pytest.mark.parametrize(
    ("shape", "context", "logged"),
    [
        ({"layers": 3}, 1024, 3146.01),
        ({"layers": 3}, 4096, 3121.51),
        ({"layers": 3}, 16_384, 4794.53),
        ({"layers": 3}, 32_768, 9434.53),
        ({"layers": 3, "newer": True}, 1024, 3145.01),
        ({"layers": 3, "newer": True}, 16_384, 3160.01),
        ({"layers": 5, "newer": True}, 32_768, 3176.01),
    ],
)
def test_the_compute_buffer_holds_the_largest_expert_tensor_or_a_batchs_scores(
    shape: Mapping[str, Any], context: int, logged: float
) -> None:
    (card,) = on_cards(held(**shape), context)
    assert 1.0 <= card["compute buffer"] / (logged * MIB) < 1.03


@pytest.mark.parametrize(
    ("shape", "logged"), [({}, (4970.50, 1298.01)), ({"newer": True}, (4970.50, 371.01))]
)
def test_of_two_cards_the_first_computes_with_all_copies(
    shape: Mapping[str, Any], logged: tuple[float, float]
) -> None:
    first, second = on_cards(held(layers=5, **shape), 4096, cards=2)
    assert 1.0 < first["compute buffer"] / (logged[0] * MIB) < 1.05
    assert 1.0 < second["compute buffer"] / (logged[1] * MIB) < 1.15


def test_with_as_many_slots_as_make_a_batch_the_last_layers_experts_are_copied_too() -> None:
    of = held(layers=2, newer=True)
    (few,), (many,) = on_cards(of, 256, slots=31), on_cards(of, 256, slots=32)
    # In Q6_K: 256 experts x 7168 x 2048 numbers, 210 bytes for 256.
    assert few["compute buffer"] < 7168 * 2048 * 210 < many["compute buffer"]


@pytest.mark.parametrize(
    ("shape", "context", "logged"),
    [
        ({"layers": 2}, 4096, 36.0117),
        ({"layers": 2}, 16_384, 60.0117),
        ({"layers": 3, "newer": True}, 16_384, 44.0117),
    ],
)
def test_beside_a_card_ram_has_what_is_handed_over(
    shape: Mapping[str, Any], context: int, logged: float
) -> None:
    assert in_ram(held(**shape), context)["compute buffer"] / MIB == pytest.approx(logged, abs=1e-4)


def test_tinyseek_took_less_than_its_budget() -> None:
    """802,160,640 bytes on the H200, of them 26.53 MiB for computing; 5.01 MiB of RAM for that."""
    (card,) = on_cards(tinyseek(), 2048)
    assert 1.1 < sum(card.values()) / 802_160_640 < 1.25
    assert 1.0 < card["compute buffer"] / (26.53 * MIB) < 1.2
    assert in_ram(tinyseek(), 2048)["compute buffer"] / MIB == pytest.approx(5.01, abs=0.01)

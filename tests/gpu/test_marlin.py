"""The parts of the checks for Marlin on a GPU, as far as they need none."""

import json
import sys
import time
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpu import cubins, figures, marlin_figures, marlin_source, memory
from gpu.linears import experts, linears
from gpu.logits import compared
from gpu.marlin import ONCE, layer_is_right, logits_are_right
from gpu.narrow import NARROW
from gpu.packed import linears_of, packed_numbers, times_on_gpu
from gpu.parts import Parts
from gpu.synthetic_model import Shape
from orchestrator.core.inventory import WeightClass
from orchestrator.core.kt_legacy.footprint import MARLIN_BITS, count, is_plain
from orchestrator.core.kt_legacy.tree import Kind, modules

# As upstream writes it, for one macro with a line for each kernel, and a configuration of each kind.
SOURCE = "".join(
    [
        "  #define CALL_IF(NUM_BITS, N_BLOCKS, K_BLOCKS, NUM_THREADS)           \\\n",
        *(
            f"    __CALL_IF(NUM_BITS, {rows}, N_BLOCKS, K_BLOCKS, {order}, {group}, NUM_THREADS) \\\n"
            for rows in (1, 2, 3, 4)
            for order, group in (
                ("true", 0),
                ("false", -1),
                ("false", 2),
                ("false", 4),
                ("false", 8),
            )
        ),
        *(f"        CALL_IF({bits}, {n}, 4, 256)\n" for bits in (4, 8) for n in range(5)),
        "  if (a.scalar_type() == at::ScalarType::Half) {\n    f<half>();\n",
        "  } else if (a.scalar_type() == at::ScalarType::BFloat16) {\n    f<nv_bfloat16>();\n  }\n",
    ]
)


def test_of_marlins_source_the_kernels_are_left_that_the_engine_calls() -> None:
    left = marlin_source.called(SOURCE)
    assert left.count("__CALL_IF(") == left.count("K_BLOCKS, false, 4, ") == 4
    assert left.count("CALL_IF(4, ") == 5
    assert "CALL_IF(8, " not in left
    assert "half" not in left
    assert "  if (a.scalar_type() == at::ScalarType::BFloat16) {\n    f<nv_bfloat16>();" in left


def test_another_source_than_marlins_is_refused() -> None:
    with pytest.raises(ValueError, match="another"):
        marlin_source.called(SOURCE.replace("CALL_IF(8, 0, 4, 256)", ""))


def test_code_is_found_in_an_elf_file_by_its_sections_name() -> None:
    found = dict(cubins.sections(Path(sys.executable).resolve().read_bytes()))
    assert b".text\0" in found[".shstrtab"]
    assert found[".text"]


def test_kernels_that_are_not_the_images_are_counted() -> None:
    wanted = json.loads(cubins.OF_IMAGE.read_text(encoding="utf-8"))
    marlins = [name for name in wanted if "6MarlinI13__nv_bfloat16" in name]
    # Five configurations of a block, for one to four times 16 rows.
    assert len(marlins) == 20
    found = wanted | {marlins[0]: "0" * 64}
    assert cubins.beside_image(found) == {
        "in the image": len(wanted),
        "the same here": len(wanted) - 1,
    }


def test_every_linear_layer_that_rules_can_place_is_counted_as_marlins() -> None:
    shape = Shape(layers=5)
    placed = [
        module
        for module in modules(shape.tree)
        if module.kind is Kind.LINEAR
        and module.layer is not None
        and not module.name.endswith("kv_b_proj")
    ]
    assert linears_of(shape) == len(placed) == 35


class Replaced(SimpleNamespace):
    """What the engine puts in a module's place: attributes that it lacks are the module's below it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.orig_module, name)


def test_a_layer_is_counted_once_though_two_modules_have_its_operator() -> None:
    originals = [SimpleNamespace(generate_linear=Wide()) for _ in range(3)]
    modules = [
        SimpleNamespace(),
        *(one for below in originals for one in (Replaced(orig_module=below), below)),
    ]
    model = SimpleNamespace(modules=lambda: modules)
    assert linears(model) == {"Wide": 3}
    assert experts(model) == {}


class Wide:
    pass


def test_layers_that_are_packed_have_all_numbers_but_kv_bs_norms_routers_and_experts(
    shards: list[Path],
) -> None:
    held = memory.inventory(memory.headers_of(shards))
    kinds = {WeightClass.ATTENTION, WeightClass.SHARED_EXPERTS, WeightClass.DENSE}
    packed = [one for one in held.weights if one.kind in kinds and not is_plain(one)]
    assert packed_numbers(NARROW) == sum(map(count, packed))


def test_each_layer_was_on_the_gpu_once_in_4_bits() -> None:
    report = figures.kept("marlin")
    assert report is not None
    shape = Shape(**report["shape"])
    runs = [one for one in report["runs"] if one["placement"] == "single-gpu"]
    assert [one["context"] for one in runs] == [8192, 131_072]
    for one in runs:
        weights = one["memory"]["weights on the GPU"]
        assert abs(times_on_gpu(shape, weights) - 1) <= ONCE
        again = weights | {
            "found_bytes": weights["found_bytes"] + shape.hidden * 576 * 9 // 16,
        }
        assert abs(times_on_gpu(shape, again) - 1) > ONCE


def test_the_budgets_bits_of_a_number_are_what_a_layer_took() -> None:
    report = figures.kept("marlin")
    assert report is not None
    assert {one["scales"] for one in report["layers"]} == {"torch.float32"}
    # Workspaces are in what it took.
    for one in report["layers"]:
        assert one["bits_of_a_number"] == pytest.approx(MARLIN_BITS, abs=0.01)


def test_a_layer_is_right_when_only_4_bits_set_it_apart() -> None:
    right = {
        "finite": True,
        "kernel_error": 0.003,
        "four_bit_error": 0.108,
        "four_bit_error_of_numbers": 0.107,
    }
    assert layer_is_right(right)
    # A wrong order of scales; numbers that were not put in 4 bits at all; more than 4 bits explain.
    assert not layer_is_right(right | {"kernel_error": 0.02})
    assert not layer_is_right(right | {"four_bit_error": 0.0, "four_bit_error_of_numbers": 0.0})
    assert not layer_is_right(right | {"four_bit_error": 0.125})


def test_logits_are_right_when_marlins_are_as_close_as_two_ways_of_the_same_numbers() -> None:
    kernel = {"decoded": {"finite": True, "median_error": 0.015}}
    floor = {"file's": {"median_error": 0.010}, "marlin's": {"median_error": 0.005}}
    assert logits_are_right({"kernel": kernel, "floor": floor}, "decoded")
    kernel["decoded"]["median_error"] = 0.025
    assert not logits_are_right({"kernel": kernel, "floor": floor}, "decoded")
    kernel["decoded"] |= {"finite": False, "median_error": 0.001}
    assert not logits_are_right({"kernel": kernel, "floor": floor}, "decoded")


def test_marlins_recorded_logits_are_right() -> None:
    report = figures.kept("marlin")
    assert report is not None
    assert all(logits_are_right(report["logits"], kind) for kind in ("decoded", "read"))


def test_logits_that_are_the_same_are_not_apart_and_others_are_by_their_relative_error() -> None:
    wanted = np.random.default_rng(1).normal(0, 1, (4, 1000)).astype(np.float32)
    same = compared(wanted, wanted)
    assert (same["largest_error"], same["same_first"], same["median_divergence_nats"]) == (0, 1, 0)
    other = np.random.default_rng(2).normal(0, 0.1, wanted.shape).astype(np.float32)
    found = compared(wanted + other, wanted)
    assert found["median_error"] == pytest.approx(0.1, rel=0.1)
    # Two normal distributions of exponents, of which one has 0.1 more: half of its square.
    assert found["median_divergence_nats"] == pytest.approx(0.005, rel=0.3)


def wrong() -> None:
    raise ValueError("as it happens")


def test_a_part_that_takes_too_long_or_fails_stops_no_other(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "report.json", time.monotonic() + 60)
    for name, at_most_s, work in (
        ("slow", 0.05, lambda: Event().wait(60)),
        ("wrong", 60, wrong),
        ("good", 60, lambda: parts.must("found", true=True, why="")),
    ):
        with parts.part(name, at_most_s):
            work()
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert set(report["failed"]) == {"slow", "wrong"}
    assert "took longer" in report["failed"]["slow"]
    assert report["seconds"].keys() == {"slow", "wrong", "good"}
    assert report["seconds"]["slow"] < 30


def test_a_part_ends_before_the_end_of_all(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "report.json", time.monotonic() + 0.05)
    with parts.part("slow", 60):
        Event().wait(60)
    assert "took longer" in parts.report["failed"]["slow"]
    assert parts.report["seconds"]["slow"] < 30


def test_of_marlin_the_table_has_what_was_reached_and_names_the_rest() -> None:
    pair = {"budget_bytes": 4_000_000_000, "found_bytes": 4_100_000_000, "ratio": 0.9756}
    names = (
        "VRAM without headroom",
        "weights on the GPU",
        "KV cache",
        "CUDA context, kernels and graph",
        "activations and what torch keeps",
        "RAM of the engine",
    )
    report: dict[str, Any] = {
        "failed": {"layers": "it ended"},
        "left_out": ["model"],
        "machine code": {"in the image": 28, "the same here": 28},
        "shape": {"layers": 5},
        "runs": [
            {
                "placement": "single-gpu",
                "context": 8192,
                "linears": {"KLinearMarlin": 35},
                "ready_s": 30.04,
                "prefill": {"tokens_per_s": 300.0},
                "tokens_per_s": 70.26,
                "memory": {"torch": {"most_loading_bytes": 9e9}} | dict.fromkeys(names, pair),
            },
            {"placement": "single-gpu", "context": 131_072},
        ],
    }
    table = "\n".join(marlin_figures.marlin(report))
    assert "Checks that failed: layers. Not reached: model." in table
    assert "28 of 28" in table
    assert "| `single-gpu`, 8192 | 35 `KLinearMarlin` | 30.0 s |" in table
    assert "| 8192 | VRAM without headroom | 4.000 GB | 4.100 GB | 0.9756 |" in table
    assert "131072" not in table

"""Outputs of 32 real hosts, as people published them, against what each of them says."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.facts import Gpu, HostFacts, NumaNode
from orchestrator.core.probes.captures import facts_of

HOSTS = Path(__file__).parents[1] / "fixtures" / "hosts"
CASES = sorted(folder.name for folder in HOSTS.iterdir())
MIB, GIB = 1 << 20, 1 << 30
# `free -h` prints Gi; by hand: 125 x 2^30, 106 x 2^30 and so on.
FREE = {
    "14Gi": 14 * GIB,
    "8.0Gi": 8 * GIB,
    "125Gi": 125 * GIB,
    "106Gi": 106 * GIB,
    "119Gi": 119 * GIB,
}


def captures_of(case: str) -> dict[str, str]:
    return {
        path.name: path.read_text(encoding="utf-8")
        for path in (HOSTS / case).iterdir()
        if path.name != "case.json"
    }


def a_host(case: str) -> HostFacts:
    return facts_of(captures_of(case))


def test_all_32_hosts_are_here() -> None:
    assert len(CASES) == 32


@pytest.mark.parametrize("case", CASES)
def test_a_real_host_has_the_facts_that_its_outputs_state_and_no_others(case: str) -> None:
    expected = json.loads((HOSTS / case / "case.json").read_text(encoding="utf-8"))["expected"]
    facts = a_host(case)
    assert set(expected) == {
        *("sockets", "physical_cores", "threads", "numa_nodes", "node_mib", "node_free_mib"),
        *("ram", "gpus", "driver", "cuda", "isa"),
    }
    cpu = facts.cpu
    assert cpu.sockets == expected["sockets"]
    assert cpu.physical_cores == expected["physical_cores"]
    assert cpu.threads == expected["threads"]
    assert {"amx": cpu.amx, "avx512": cpu.avx512, "avx2": cpu.avx2} == expected["isa"]
    assert facts.node_count == expected["numa_nodes"]
    assert _sizes(facts.nodes, "memory_bytes") == expected["node_mib"]
    assert _ram(facts) == _bytes(expected["ram"])
    assert _cards(facts.gpus) == expected["gpus"]
    assert facts.driver_version == expected["driver"]
    # "N/A" is the driver's word for not knowing.
    assert facts.driver_cuda == (None if expected["cuda"] == "N/A" else expected["cuda"])
    # The cases leave out what is free on nodes that have no memory at all.
    free = _sizes(facts.nodes, "memory_free_bytes")
    total = expected["node_mib"] or {}
    assert (
        free == expected["node_free_mib"]
        or {node: size for node, size in (free or {}).items() if total[node]}
        == expected["node_free_mib"]
    )


def _sizes(nodes: tuple[NumaNode, ...] | None, field: str) -> dict[str, int] | None:
    sizes = {str(node.id): getattr(node, field) for node in nodes or ()}
    known = {node: size // MIB for node, size in sizes.items() if size is not None}
    return known or None


def _ram(facts: HostFacts) -> dict[str, int | None]:
    return {"total": facts.memory.total_bytes, "available": facts.memory.available_bytes}


def _bytes(ram: Mapping[str, Any] | None) -> dict[str, int | None]:
    if ram is None:
        return {"total": None, "available": None}
    if "total_kb" in ram:
        return {name: ram[f"{name}_kb"] * 1024 for name in ("total", "available")}
    return {name: FREE[ram[name]] for name in ("total", "available")}


def _cards(gpus: tuple[Gpu, ...] | None) -> list[dict[str, Any]] | None:
    return None if gpus is None else [_card(gpu) for gpu in gpus]


def _card(gpu: Gpu) -> dict[str, Any]:
    total, used = gpu.memory_bytes, gpu.memory_used_bytes
    card: dict[str, Any] = {
        "name": gpu.name,
        "vram_total_mib": None if total is None else total // MIB,
        "vram_used_mib": None if used is None else used // MIB,
    }
    if gpu.mig:
        slices = [size // MIB for size in gpu.mig_slices_bytes]
        card |= {"mig": True, "mig_slices_total_mib": slices}
    return card

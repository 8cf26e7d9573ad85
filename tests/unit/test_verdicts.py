"""Every profile of the catalogue on every composed host: which checks speak against it.

What is not named here fits. Checked by hand against the hosts' numbers (GB = 10^9 bytes): cards of
24 GB have 25.2 free, so 22 (the 7B on a card) fits and 27 (amxint4) and 32 (V4-Flash) are too much; Q4_K_M takes 386 to 402 of RAM;
the distilled 70B reads 42.5 a token, so 5 tokens/s want 40 cores at 5.4 a core; FP8 wants compute
capability 8.9 and AVX512-BF16.
"""

from collections.abc import Mapping

import pytest

import hosts
from catalogue_ranking import ranking
from orchestrator.core.advice import Advice
from orchestrator.core.recommend import Ranked

Q4 = {"deepseek-r1-q4km", "deepseek-r1-0528-q4km", "deepseek-v3-0324-q4km", "deepseek-v3.1-q4km"}
DYNAMIC = {
    "deepseek-r1-ud-q2kxl",
    "deepseek-r1-ud-iq1m",
    "deepseek-r1-ud-iq1s",
    "deepseek-r1-0528-ud-iq1s",
    "deepseek-v3-0324-ud-q2kxl",
    "deepseek-v3.1-ud-q2kxl",
}
LARGE_DISTILLED = {"deepseek-r1-distill-70b", "deepseek-r1-distill-32b"}
DISTILLED = LARGE_DISTILLED | {
    f"deepseek-r1-distill-{size}" for size in ("14b", "8b", "7b", "1.5b")
}
SMALL = {"smollm2-135m", "demo", "demo-q5"}
TWO_CARDS, AMX = {"deepseek-r1-q4km-2gpu"}, {"deepseek-r1-amxint4"}
V4, CODER = {"deepseek-v4-flash"}, {"qwen3-coder-next-fp8"}
QWEN = {"qwen3-30b-a3b-bf16", "qwen3-30b-a3b-q4km"}
DENSE = {"deepseek-r1-distill-7b-gpu"}
GPU = Q4 | TWO_CARDS | AMX | V4 | CODER | QWEN | DENSE | {"demo-gpu"}
ALL = GPU | DYNAMIC | DISTILLED | SMALL
# On whatever host: converted experts, or another repository for the GPU.
ALSO_NEEDS = AMX | {"qwen3-30b-a3b-q4km"}

VERDICTS: Mapping[str, Mapping[str, set[str]]] = {
    "rtx4090_480gb_two_sockets": {
        "gpu-count": TWO_CARDS,
        "vram": AMX | V4,
    },
    "rtx4090_256gb": {
        "memory": Q4 | TWO_CARDS | AMX | {"deepseek-v3-0324-ud-q2kxl"},
        "gpu-count": TWO_CARDS,
        "too slow": {"deepseek-r1-distill-70b"},
        "vram": AMX | V4,
        "cpu-instructions": AMX,
    },
    "rtx3090_512gb": {
        "gpu-count": TWO_CARDS,
        "too slow": {"deepseek-r1-distill-70b"},
        "compute-capability": AMX | V4 | CODER,
        "cpu-instructions": AMX | CODER,
        "vram": AMX | V4,
    },
    "no_amx_epyc": {
        "gpu-count": TWO_CARDS,
        "cpu-instructions": AMX | CODER,
        "vram": AMX | V4,
    },
    "amx_sapphire_rapids": {
        "gpu-count": TWO_CARDS,
    },
    "four_nodes_128gb_each": {
        "gpu-count": TWO_CARDS,
        "cpu-instructions": AMX | CODER,
        "vram": AMX | V4,
    },
    "two_cards_24gb": {
        "too slow": {"deepseek-r1-distill-70b"},
        "cpu-instructions": AMX | CODER,
        "vram": AMX | V4,
    },
    "container_64gb_limit_on_512gb": {
        "container": ALL,
        "memory": Q4 | DYNAMIC | TWO_CARDS | AMX | V4 | CODER,
        # Half of the limit on each node.
        "memory-nodes": Q4 | DYNAMIC | TWO_CARDS | AMX | V4 | CODER,
        # 16 CPUs of 72 are granted: 16 x 5.4 GB/s over the 19.9 GB of the 32B model are 4.4 tokens/s.
        "too slow": {"deepseek-r1-distill-32b", "deepseek-r1-distill-70b"},
        "gpu-count": TWO_CARDS,
        "vram": AMX | V4,
        "cpu-instructions": AMX,
    },
    "no_gpu_small": {
        "memory": Q4
        | DYNAMIC
        | TWO_CARDS
        | AMX
        | V4
        | CODER
        | LARGE_DISTILLED
        | {"qwen3-30b-a3b-bf16"},
        "gpu-count": GPU,
        "vram": GPU,
        "too slow": DYNAMIC | DISTILLED - {"deepseek-r1-distill-1.5b"},
        "cpu-instructions": AMX,
    },
    "wsl2_4090": {
        "memory": Q4
        | DYNAMIC
        | TWO_CARDS
        | AMX
        | V4
        | CODER
        | {"deepseek-r1-distill-70b", "qwen3-30b-a3b-bf16"},
        "gpu-count": TWO_CARDS,
        "too slow": LARGE_DISTILLED,
        "vram": QWEN | AMX | V4 | CODER,
        "cpu-instructions": AMX | CODER,
    },
    "h200": {
        "gpu-count": TWO_CARDS,
    },
    "aarch64_grace": {
        "architecture": ALL,
        "avx2": ALL,
        "cpu-instructions": ALL,
        "gpu-count": TWO_CARDS,
    },
    "mig_a30": {
        "vram": GPU,
        "gpu-count": GPU,
        "too slow": {"deepseek-r1-distill-70b"},
        "compute-capability": AMX | V4 | CODER,
        "cpu-instructions": AMX | CODER,
    },
    "old_driver_v100": {
        "compute-capability": GPU,
        "driver": GPU,
        "gpu-count": TWO_CARDS,
        "cpu-instructions": AMX,
    },
}


def checks_against(ranked: Ranked) -> set[str]:
    """Beside the engine's image and Docker, which a later release and ./install.sh bring."""
    return {reason.split(":")[0] for reason in ranked.against} - {"engine-image", "docker"}


@pytest.mark.parametrize("host", VERDICTS)
def test_every_profile_is_refused_for_the_right_reasons_and_no_other(host: str) -> None:
    found = {ranked.name: checks_against(ranked) for ranked in ranking(getattr(hosts, host)())}
    assert set(found) == ALL
    verdicts = {**VERDICTS[host], "also-needs": ALSO_NEEDS}
    expected = {name: {check for check, names in verdicts.items() if name in names} for name in ALL}
    assert found == expected
    fitting = {ranked.name for ranked in ranking(getattr(hosts, host)()) if ranked.fits}
    assert fitting == {name for name, against in expected.items() if not against}


def needs(advice: Advice) -> dict[str, float]:
    """Place -> GB."""
    return {share.where: round(share.need_bytes / 1e9, 1) for share in advice.budget.shares}


def test_the_flagship_takes_half_its_ram_on_each_of_two_nodes() -> None:
    # Experts 393,983,557,632 bytes + 1.85 embedding + 0.66 buffers + 1.07 engine + 0.39 chat page and
    # gateway + 4.24 left to the system = 402.2, on two nodes 201.1; and 404.43 + 6.72 images + 1.07.
    flagship = next(
        r for r in ranking(hosts.rtx4090_480gb_two_sockets()) if r.name == "deepseek-r1-q4km"
    )
    assert needs(flagship.advice) == {
        "disk": 412.2,
        "RAM node 0": 201.1,
        "RAM node 1": 201.1,
        "GPU 0": 16.9,
    }


def test_on_four_nodes_it_takes_a_quarter_on_each() -> None:
    flagship = next(
        r for r in ranking(hosts.four_nodes_128gb_each()) if r.name == "deepseek-r1-q4km"
    )
    assert [needs(flagship.advice)[f"RAM node {node}"] for node in range(4)] == [100.6] * 4

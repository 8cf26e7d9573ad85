"""Which CPU kernels are taken on which processor."""

from pathlib import Path

import pytest

from kt_legacy_engine.kernels import about_gpu, check_placement, choose, cpu_flags
from kt_legacy_engine.refusals import Refused

HASWELL = "avx2 fma f16c"
SKYLAKE_X = f"{HASWELL} avx512f avx512bw avx512vl avx512dq"
ICE_LAKE = f"{SKYLAKE_X} avx512_vnni"
SAPPHIRE_RAPIDS = f"{ICE_LAKE} avx512_bf16"


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    for name in ("avx2", "avx512", "fancy", "bf16", "avx2-numa"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "best"),
    [(HASWELL, "avx2"), (SKYLAKE_X, "avx512"), (ICE_LAKE, "fancy"), (SAPPHIRE_RAPIDS, "bf16")],
)
def test_the_best_that_the_processor_can_run_is_taken(kernels: Path, flags: str, best: str) -> None:
    folder, why = choose("auto", flags.split(), kernels, numa_copies=False)
    assert folder == kernels / best
    assert why.startswith(best)


def test_one_may_be_asked_for(kernels: Path) -> None:
    folder, why = choose("avx2", SAPPHIRE_RAPIDS.split(), kernels, numa_copies=False)
    assert (folder, why) == (kernels / "avx2", "avx2, as asked for")


def test_copies_for_every_node_come_from_the_build_that_makes_them(kernels: Path) -> None:
    folder, _ = choose("auto", SAPPHIRE_RAPIDS.split(), kernels, numa_copies=True)
    assert folder == kernels / "avx2-numa"


@pytest.mark.parametrize(
    ("wanted", "flags", "numa_copies", "why"),
    [
        ("auto", "sse4_2", False, "lacks avx2, f16c, fma"),
        ("bf16", HASWELL, False, "lacks avx512_bf16"),
        ("bf16", SAPPHIRE_RAPIDS, True, "bf16-numa was asked for"),
    ],
)
def test_what_would_be_an_illegal_instruction_is_refused(
    kernels: Path, wanted: str, flags: str, numa_copies: bool, why: str
) -> None:
    with pytest.raises(Refused) as refusal:
        choose(wanted, flags.split(), kernels, numa_copies=numa_copies)
    assert refusal.value.exit_code == 78
    assert why in refusal.value.why[0]


def test_flags_are_the_first_processors() -> None:
    cpuinfo = (
        "processor\t: 0\nflags\t\t: fpu avx2\nbugs\t\t: none\n\nprocessor\t: 1\nflags\t\t: x\n"
    )
    assert cpu_flags(cpuinfo) == {"fpu", "avx2"}


@pytest.mark.parametrize("kernel", ["KLinearMarlin", "KExpertsMarlin"])
def test_a_placement_that_needs_marlin_is_refused_by_an_image_without_it(
    tmp_path: Path, kernel: str
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(f"# x: no Marlin\n  generate_op: {kernel}\n")
    check_placement(rules, marlin=True)
    with pytest.raises(Refused, match="kernels that this image was built without") as refusal:
        check_placement(rules, marlin=False)
    assert refusal.value.exit_code == 2
    rules.write_text("# x: no Marlin\n  generate_op: KLinearTorch\n")
    check_placement(rules, marlin=False)


def test_only_the_build_without_marlin_has_something_to_say() -> None:
    assert about_gpu(marlin=True) == ()
    assert "built without Marlin" in about_gpu(marlin=False)[0]

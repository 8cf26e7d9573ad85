"""Reasons not to start, and which profile to start with."""

import pytest

from fakes import a_host, a_profile
from orchestrator.core.errors import BadConfiguration, UnfitHost, UnfitProfile
from orchestrator.core.facts import Gpu
from orchestrator.core.preflight import refuse_unfit
from orchestrator.core.profile import pick_profile, wants_index
from orchestrator.core.settings import Settings

KNOWN = ("demo", "demo-q5")
CHOSEN = Settings(profile="tiny")


def test_a_fit_host_is_not_refused() -> None:
    refuse_unfit(a_profile(), Settings(), a_host(), missing_bytes=2_000_000_000)


def test_every_reason_is_told_at_once() -> None:
    poor = a_host(
        memory_available_bytes=400_000_000,
        disk_free_bytes=1_000_000_000,
        cpu_flags=frozenset({"sse2"}),
    )
    with pytest.raises(UnfitProfile) as refusal:
        refuse_unfit(a_profile(), CHOSEN, poor, missing_bytes=2_000_000_000)
    assert refusal.value.exit_code == 4
    assert "0.5 GB of free RAM, this host has 0.4 GB" in refusal.value.why
    # 2.0 GB of weights and 1 GiB to spare
    assert "3.1 GB needed (2.0 GB of weights), 1.0 GB free" in refusal.value.why
    assert "needs avx2" in refusal.value.why


def test_where_not_even_the_profile_chosen_for_a_host_fits_no_profile_does() -> None:
    with pytest.raises(UnfitHost) as refusal:
        refuse_unfit(a_profile(), Settings(), a_host(memory_available_bytes=1), missing_bytes=0)
    assert refusal.value.exit_code == 3


def test_weights_that_are_there_need_no_more_room() -> None:
    refuse_unfit(a_profile(), Settings(), a_host(disk_free_bytes=1_100_000_000), missing_bytes=0)


def test_what_could_not_be_told_is_not_held_against_a_host() -> None:
    unknown = a_host(memory_available_bytes=None, disk_free_bytes=None, cpu_flags=None)
    refuse_unfit(a_profile(), Settings(), unknown, missing_bytes=2_000_000_000)


def test_a_memory_limit_below_the_profiles_need_is_refused() -> None:
    low = Settings(profile="tiny", inference_memory_bytes=100 << 20)
    with pytest.raises(UnfitProfile, match="can't run here"):
        refuse_unfit(a_profile(), low, a_host(), missing_bytes=0)


def test_a_port_in_use_is_named_with_the_variable_that_moves_it() -> None:
    with pytest.raises(BadConfiguration) as refusal:
        refuse_unfit(a_profile(), Settings(), a_host(busy_ports=frozenset({3000})), missing_bytes=0)
    assert "3000" in refusal.value.what
    assert "ORCH_WEBUI_PORT=" in refusal.value.next_step


def test_the_profile_named_is_the_profile_taken() -> None:
    assert pick_profile("demo-q5", "demo", KNOWN, a_host()).name == "demo-q5"


def test_without_a_name_the_profile_that_served_last_stays() -> None:
    assert pick_profile(None, "demo-q5", KNOWN, a_host()).name == "demo-q5"


def test_without_a_gpu_the_demo_is_picked_in_one_line_that_says_why_and_how_to_choose() -> None:
    pick = pick_profile(None, None, KNOWN, a_host(gpus=()))
    assert pick.name == "demo"
    assert "no NVIDIA GPU" in pick.reason
    assert "--profile NAME, one of demo, demo-q5" in pick.reason
    assert "\n" not in pick.reason


@pytest.mark.parametrize(
    ("index_answers", "gpus", "name"),
    [
        (True, (), "smollm2-135m"),
        (False, (), "demo"),
        (None, (), "demo"),
        (True, (Gpu(name="NVIDIA A30", memory_bytes=24 << 30),), "demo"),
    ],
)
def test_a_small_real_model_is_picked_without_a_gpu_where_its_index_answers(
    *, index_answers: bool | None, gpus: tuple[Gpu, ...], name: str
) -> None:
    host = a_host(gpus=gpus, index_answers=index_answers)
    assert pick_profile(None, None, (*KNOWN, "smollm2-135m"), host).name == name
    assert pick_profile("demo", None, (*KNOWN, "smollm2-135m"), host).name == "demo"
    assert pick_profile(None, None, KNOWN, host).name == "demo"


def test_the_index_is_asked_only_where_the_choice_hangs_on_it() -> None:
    assert wants_index(None, None, a_host(gpus=()))
    assert not wants_index("demo", None, a_host(gpus=()))
    assert not wants_index(None, "demo", a_host(gpus=()))


def test_with_a_gpu_the_reason_is_not_that_there_is_none() -> None:
    gpu = Gpu(name="NVIDIA GeForce RTX 4090", memory_bytes=24 << 30)
    assert "no NVIDIA GPU" not in pick_profile(None, None, KNOWN, a_host(gpus=(gpu,))).reason


def test_a_full_disk_refuses_nothing_that_needs_no_room() -> None:
    refuse_unfit(a_profile(), CHOSEN, a_host(disk_free_bytes=1), missing_bytes=0)

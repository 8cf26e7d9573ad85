"""Refusals: every reason in one error, each with its exit code, and what --force overrides."""

from typing import Any

import pytest

import hosts
from fakes import a_host, a_profile
from judged import GB, judged, of_host, placed, shipped, taking
from orchestrator.core.checks.finding import Finding, Said, Severity
from orchestrator.core.errors import BadConfiguration, UnfitHost, UnfitProfile
from orchestrator.core.preflight import refuse, refuse_full_disk
from orchestrator.core.settings import Settings

WHY = Said("it matters", "很重要")


def blocker(check: str, **changes: Any) -> Finding:
    fields: dict[str, Any] = {
        "check": check,
        "severity": Severity.BLOCK,
        "found": "212.0 GB (/data)",
        "needed": "404.4 GB",
        "why": WHY,
        "next_step": Said("free some", "请腾出空间"),
    }
    return Finding(**(fields | changes))


def note(check: str, severity: Severity) -> Finding:
    return blocker(check, severity=severity)


DISK = blocker("disk")
NODES = blocker("memory-nodes", found="node 0: 251.0 GB", needed="node 0: 391.0 GB")
PORTS = blocker(
    "ports", found="8080: in use", needed="8080 3000", fix="export ORCH_GATEWAY_PORT=8081"
)


def test_only_blockers_refuse() -> None:
    mild = tuple(note(severity.value, severity) for severity in Severity if severity != "block")
    assert refuse(mild, forced=(), profile=a_profile(), chosen=True) == ()


def test_every_blocker_is_in_the_one_error_with_its_numbers() -> None:
    with pytest.raises(UnfitProfile) as refusal:
        refuse((DISK, NODES), forced=(), profile=a_profile(), chosen=True)
    assert refusal.value.exit_code == 4
    assert refusal.value.why == (
        "disk: needs 404.4 GB, found 212.0 GB (/data); "
        "memory-nodes: needs node 0: 391.0 GB, found node 0: 251.0 GB"
    )
    assert "--force disk --force memory-nodes" in refusal.value.next_step


def test_what_no_profile_can_change_refuses_the_host() -> None:
    arm = blocker("architecture", of_host=True)
    with pytest.raises(UnfitHost) as refusal:
        refuse((DISK, arm), forced=(), profile=a_profile(), chosen=True)
    assert refusal.value.exit_code == 3


def test_where_not_even_the_profile_chosen_for_a_host_fits_no_profile_does() -> None:
    with pytest.raises(UnfitHost):
        refuse((DISK,), forced=(), profile=a_profile(), chosen=False)


def test_a_port_in_use_alone_is_a_matter_of_configuration() -> None:
    with pytest.raises(BadConfiguration) as refusal:
        refuse((PORTS,), forced=(), profile=a_profile(), chosen=True)
    assert refusal.value.exit_code == 2
    assert "8080" in refusal.value.why
    assert "export ORCH_GATEWAY_PORT=8081" in refusal.value.next_step
    with pytest.raises(UnfitProfile, match="8080: in use"):
        refuse((PORTS, DISK), forced=(), profile=a_profile(), chosen=True)


def test_a_forced_check_refuses_nothing_and_is_told_back_if_it_would_have() -> None:
    fine = note("vram", Severity.OK)
    assert refuse((DISK, fine), forced=("disk", "vram"), profile=a_profile(), chosen=True) == (
        DISK,
    )


def test_forcing_one_check_leaves_the_others() -> None:
    with pytest.raises(UnfitProfile) as refusal:
        refuse((DISK, NODES), forced=("disk",), profile=a_profile(), chosen=True)
    assert "disk" not in refusal.value.why
    assert "memory-nodes" in refusal.value.why


def test_forcing_a_check_that_is_none_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(BadConfiguration) as refusal:
        refuse((DISK, NODES), forced=("memory-node",), profile=a_profile(), chosen=True)
    assert "did you mean 'memory-nodes'?" in refusal.value.next_step
    assert "disk, memory-nodes" in refusal.value.why


def test_the_flagship_on_half_the_ram_is_refused_with_what_it_needs_and_what_there_is() -> None:
    # 246 GiB = 264.1 GB are available; 395 GB are to be held.
    facts = hosts.rtx4090_256gb()
    where = placed(facts, (0,))
    budget = taking(facts, where, fetch_gb=404.4, ram_gb=395, vram_gb=14)
    findings = tuple(judged(shipped("deepseek-r1-q4km"), facts, where, budget).values())
    with pytest.raises(UnfitProfile) as refusal:
        refuse(findings, forced=(), profile=shipped("deepseek-r1-q4km"), chosen=True)
    assert "memory: needs 395.0 GB, found 264.1 GB" in refusal.value.why


@pytest.mark.parametrize("host", [hosts.aarch64_grace, hosts.container_64gb_limit_on_512gb])
def test_a_host_on_which_nothing_runs_ends_with_3_also_for_a_chosen_profile(host: Any) -> None:
    findings = tuple(of_host(host()).values())
    with pytest.raises(UnfitHost):
        refuse(findings, forced=(), profile=a_profile(), chosen=True)


def test_a_full_disk_refuses_a_download_with_both_numbers() -> None:
    full = a_host(disk={"path": "weights", "free_bytes": 1 * GB})
    with pytest.raises(UnfitProfile) as refusal:
        refuse_full_disk(a_profile(), Settings(), full, missing_bytes=2 * GB)
    # 2.0 GB of weights and 1 GiB to spare.
    assert refusal.value.why == "3.1 GB needed (2.0 GB of weights), 1.0 GB free in weights"


def test_a_full_disk_refuses_nothing_that_needs_no_room() -> None:
    full = a_host(disk={"path": "weights", "free_bytes": 1})
    refuse_full_disk(a_profile(), Settings(), full, missing_bytes=0)


def test_a_disk_that_did_not_say_what_is_free_refuses_nothing() -> None:
    refuse_full_disk(a_profile(), Settings(), a_host(disk=None), missing_bytes=2 * GB)

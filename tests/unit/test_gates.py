"""`judge`: from one look to one of three answers."""

from dataclasses import replace

import pytest

from fakes import ABSENT, DONE, HEALTHY, PARIS, READY, REPLIED, STARTING, a_plan
from orchestrator.core.gates import (
    Answers,
    EngineSays,
    Fault,
    Gate,
    GateResult,
    Generates,
    Healthy,
    ImagePresent,
    Proven,
    Reply,
    Sighting,
    Verdict,
    describe_exit,
    judge,
)

GENERATES = Generates(
    service="inference",
    url="http://x",
    model="m",
    prompt="?",
    expected=PARIS,
    max_tokens=8,
    times=2,
)
UNPROVEN = ("a.gguf: the file is missing",)


@pytest.mark.parametrize(
    ("gate", "seen", "verdict"),
    [
        (ImagePresent("x"), Sighting(image_present=True), Verdict.OPEN),
        (ImagePresent("x"), Sighting(image_present=False), Verdict.WAIT),
        (Proven("weights"), DONE, Verdict.OPEN),
        (Proven("weights"), ABSENT, Verdict.WAIT),
        (Proven("weights"), Sighting(unproven=()), Verdict.OPEN),
        (Proven("weights"), Sighting(status="running", unproven=()), Verdict.WAIT),
        (Proven("weights"), replace(DONE, unproven=UNPROVEN), Verdict.SHUT),
        (Proven("weights"), replace(DONE, exit_code=5, unproven=UNPROVEN), Verdict.SHUT),
        (Healthy("inference"), HEALTHY, Verdict.OPEN),
        (Healthy("inference"), STARTING, Verdict.WAIT),
        (Healthy("inference"), ABSENT, Verdict.WAIT),
        (Healthy("inference"), replace(STARTING, health="unhealthy"), Verdict.WAIT),
        (Healthy("inference"), Sighting(status="exited", exit_code=1), Verdict.SHUT),
        (Healthy("inference"), Sighting(status="dead"), Verdict.SHUT),
        (Healthy("inference"), replace(STARTING, out_of_memory=True), Verdict.SHUT),
        (Answers("gateway", "http://x"), READY, Verdict.OPEN),
        (Answers("gateway", "http://x"), replace(READY, http_status=503), Verdict.WAIT),
        (Answers("gateway", "http://x"), replace(READY, http_status=None), Verdict.WAIT),
        (GENERATES, REPLIED, Verdict.OPEN),
        (GENERATES, replace(REPLIED, replies=REPLIED.replies[:1]), Verdict.WAIT),
        (GENERATES, replace(REPLIED, replies=()), Verdict.WAIT),
    ],
)
def test_each_sighting_has_one_answer(gate: Gate, seen: Sighting, verdict: Verdict) -> None:
    assert judge(gate, seen, ABSENT).verdict is verdict


def test_a_restart_policy_does_not_hide_a_crash() -> None:
    looping = replace(STARTING, restarts=1)
    result = judge(Healthy("inference"), looping, STARTING)
    assert (result.verdict, result.reason) == (Verdict.SHUT, "crashed and was restarted")


def test_a_crash_before_the_first_look_at_a_new_container_is_seen() -> None:
    looping = replace(STARTING, container_id="new", restarts=1)
    assert judge(Healthy("inference"), looping, ABSENT).verdict is Verdict.SHUT
    old = replace(STARTING, container_id="old", restarts=7)
    assert judge(Healthy("inference"), looping, old).verdict is Verdict.SHUT


def test_restarts_of_earlier_days_are_not_held_against_a_container() -> None:
    seasoned = replace(HEALTHY, restarts=4)
    assert judge(Healthy("inference"), seasoned, seasoned).verdict is Verdict.OPEN


def test_a_count_that_docker_set_back_starts_from_zero() -> None:
    before = replace(STARTING, restarts=7)
    assert judge(Healthy("inference"), replace(STARTING, restarts=1), before).verdict is (
        Verdict.SHUT
    )


def test_the_exit_code_of_the_crash_is_told_while_docker_still_shows_it() -> None:
    restarting = Sighting(status="restarting", container_id="i1", restarts=1, exit_code=132)
    result = judge(Healthy("inference"), restarting, STARTING)
    assert result.reason == "crashed (exit 132, illegal instruction) and was restarted"


@pytest.mark.parametrize(
    ("exit_code", "fault"),
    [
        (1, Fault.CRASH),
        (2, Fault.CONFIGURATION),
        (5, Fault.SOURCE),
        (6, Fault.VERIFICATION),
        (137, Fault.CRASH),
    ],
)
def test_the_weights_jobs_exit_code_says_whose_fault_it_is(exit_code: int, fault: Fault) -> None:
    seen = replace(DONE, exit_code=exit_code, unproven=UNPROVEN, last_line="what it said last")
    result = judge(Proven("weights"), seen, ABSENT)
    assert result.fault is fault
    assert result.reason.endswith("what it said last")


def test_every_reply_must_hold_the_expected_text() -> None:
    wrong = (*REPLIED.replies[:1], Reply(text="Rome", first_token_s=1))
    result = judge(GENERATES, replace(REPLIED, replies=wrong), ABSENT)
    assert (result.verdict, result.fault) == (Verdict.SHUT, Fault.ACCEPTANCE)


def test_the_first_token_time_told_is_the_last_one_measured() -> None:
    assert judge(GENERATES, REPLIED, ABSENT).reason == "first token after 0.10 s"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit 0"),
        (1, "exit 1"),
        # signal(7): SIGILL 4, SIGKILL 9, SIGSEGV 11, SIGTERM 15
        (128 + 4, "exit 132, illegal instruction"),
        (128 + 9, "exit 137, killed"),
        (128 + 11, "exit 139, segmentation fault"),
        (128 + 15, "exit 143, stopped"),
        (None, "ended"),
    ],
)
def test_exit_codes_are_told_in_words(code: int | None, words: str) -> None:
    assert describe_exit(code) == words


def test_a_crash_is_told_with_the_last_line_that_was_said() -> None:
    looping = replace(STARTING, restarts=1, last_line="the engine was ended by SIGKILL")
    assert judge(Healthy("inference"), looping, STARTING).reason == (
        "crashed and was restarted: the engine was ended by SIGKILL"
    )


@pytest.mark.parametrize(
    ("http_status", "trouble"),
    [(401, ""), (502, '502 {"error": {"code": "engine_refused_gateway"}}')],
)
def test_a_key_that_was_changed_is_not_waited_for(http_status: int, trouble: str) -> None:
    seen = replace(REPLIED, replies=(), http_status=http_status, trouble=trouble)
    result = judge(GENERATES, seen, ABSENT)
    assert (result.verdict, result.fault) == (Verdict.SHUT, Fault.KEY)


# --- busy is not dead, and once is not enough


@pytest.mark.parametrize(
    ("http_status", "trouble"),
    [
        (429, '429 {"error": {"code": "queue_full"}}'),
        (503, '503 {"error": {"code": "engine_busy"}}'),
        (503, '503 {"error": {"code": "engine_loading"}}'),
        (504, '504 {"error": {"code": "first_token_timeout"}}'),
        (None, "timed out"),
    ],
)
def test_an_engine_that_works_for_others_or_still_compiles_is_waited_for(
    http_status: int | None, trouble: str
) -> None:
    seen = replace(REPLIED, replies=(), http_status=http_status, trouble=trouble)
    assert judge(GENERATES, seen, ABSENT) == GateResult(Verdict.WAIT, trouble)


def test_an_engine_that_answered_once_and_then_no_more_is_told_from_one_that_never_did() -> None:
    seen = replace(REPLIED, replies=REPLIED.replies[:1], trouble="timed out")
    assert judge(GENERATES, seen, ABSENT).reason == "reply 2 of 2: timed out"


@pytest.mark.parametrize(("patience_s", "next_s"), [(1200, 60), (20, 20)])
def test_the_first_generation_has_a_long_patience_and_the_second_must_be_fast(
    patience_s: int, next_s: int
) -> None:
    plan = a_plan(first_token_timeout_s=patience_s)
    (gate,) = [step.gate for step in plan.steps if isinstance(step.gate, Generates)]
    assert (gate.times, gate.first_within_s, gate.next_within_s) == (2, patience_s, next_s)


# --- an engine that says how far it is


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (
            EngineSays(
                status="loading", loaded_bytes=101 * 10**9, total_bytes=404 * 10**9, eta_s=900
            ),
            "loading 101.0 of 404.0 GB (25 %), 15 min left",
        ),
        (EngineSays(status="loading", read_bytes=3 * 10**9), "loading, 3.0 GB read from disk"),
        (EngineSays(status="warming up"), "warming up"),
    ],
)
def test_a_load_is_waited_for_whatever_docker_calls_it(says: EngineSays, reason: str) -> None:
    for health in ("starting", "unhealthy"):
        seen = replace(STARTING, health=health, engine=says)
        result = judge(Healthy("inference"), seen, ABSENT)
        assert (result.verdict, result.reason) == (Verdict.WAIT, reason)


def test_an_engine_that_says_it_failed_is_not_waited_for() -> None:
    seen = replace(STARTING, engine=EngineSays(status="failed", reason="out of memory"))
    result = judge(Healthy("inference"), seen, ABSENT)
    assert (result.verdict, result.fault) == (Verdict.SHUT, Fault.CRASH)
    assert result.reason == "failed: out of memory"


def test_what_docker_calls_healthy_is() -> None:
    seen = replace(HEALTHY, engine=EngineSays(status="ok"))
    assert judge(Healthy("inference"), seen, ABSENT).verdict is Verdict.OPEN


@pytest.mark.parametrize("code", [3, 78])
def test_an_engine_without_a_card_or_kernels_is_not_started_again(code: int) -> None:
    seen = Sighting(status="exited", exit_code=code, last_line="there is no GPU")
    result = judge(Healthy("inference"), seen, ABSENT)
    assert (result.verdict, result.fault) == (Verdict.SHUT, Fault.CONFIGURATION)

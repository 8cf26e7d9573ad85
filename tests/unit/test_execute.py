"""`execute` against a world made of lists."""

from dataclasses import replace

import pytest

from fakes import (
    ABSENT,
    CRASHED,
    DONE,
    HEALTHY,
    READY,
    REPLIED,
    STARTING,
    FakeClock,
    FakeImages,
    FakeStack,
    ScriptedLookout,
    a_plan,
    a_world,
)
from orchestrator.core.errors import (
    AcceptanceNotMet,
    BadConfiguration,
    DockerUnavailable,
    FetchFailed,
    GateStayedShut,
    OrchestratorError,
    VerificationFailed,
)
from orchestrator.core.events import (
    ActionProgressed,
    Event,
    GateChecked,
    StepGaveUp,
    StepKept,
    StepPassed,
    StepStarted,
)
from orchestrator.core.gates import EngineSays, Gate, Reply, Sighting
from orchestrator.execute import execute
from orchestrator.world import World
from wire.order import Phase, Progress

A_PROGRESS = Progress(
    phase=Phase.FETCHING,
    done_bytes=1,
    total_bytes=2,
    rate=1.0,
    eta_s=1.0,
    source="huggingface",
    note="",
    files=(),
    written_at=0.0,
)
ASKING = StepStarted("first token", 1, "a running container proves nothing, a reply does")
STEPS = [
    "base system",
    "image base",
    "image gateway",
    "weights",
    "inference",
    "gateway",
    "first token",
    "webui",
]


def happenings(world: World, **settings: int) -> tuple[list[Event], OrchestratorError | None]:
    """Everything that happened, and the error that ended it."""
    happened: list[Event] = []
    story = execute(a_plan(**settings), world)
    try:
        for event in story:
            happened.append(event)  # noqa: PERF402 - extend would lose them on an error
    except OrchestratorError as error:
        return happened, error
    return happened, None


def test_a_calm_run_passes_every_step_in_order() -> None:
    happened, error = happenings(a_world())
    assert error is None
    assert [event.step for event in happened if isinstance(event, StepPassed)] == STEPS


def test_nothing_is_touched_where_everything_already_is_as_asked() -> None:
    images = FakeImages()
    assert happenings(a_world(images=images))[1] is None
    stack = FakeStack(current=True)
    world = a_world(
        stack=stack,
        images=images,
        weights=[DONE],
        inference=[HEALTHY],
        gateway=[READY],
        first_token=[REPLIED],
        webui=[READY],
    )
    happened, _ = happenings(world)
    # To ask the model is the one thing that is done.
    assert [type(event) for event in happened if event != ASKING] == [StepKept] * len(STEPS)
    assert stack.calls == []


def test_that_the_model_is_asked_is_said_once_and_before_it_thinks() -> None:
    world = a_world(first_token=[ABSENT, ABSENT, REPLIED])
    assert isinstance(world.lookout, ScriptedLookout)
    happened = []
    for event in execute(a_plan(), world):
        happened.append(event)
        if event == ASKING:
            assert world.lookout.script["first token"] == [ABSENT, ABSENT, REPLIED]
    assert happened.count(ASKING) == 1


def test_a_healthy_service_of_another_configuration_is_started_anew() -> None:
    stack = FakeStack(current=False)
    happenings(a_world(stack=stack, inference=[HEALTHY]))
    assert "start inference" in stack.calls


def test_a_slow_model_is_waited_for() -> None:
    happened, _ = happenings(a_world(inference=[ABSENT, ABSENT, STARTING, STARTING, HEALTHY]))
    looks = [e for e in happened if isinstance(e, GateChecked) and e.step == "inference"]
    assert [look.result.reason for look in looks] == ["starting", "starting", "healthy"]


def test_a_crash_is_retried_with_a_fresh_container_and_its_last_words_are_kept() -> None:
    stack = FakeStack()
    world = a_world(stack=stack, inference=[ABSENT, ABSENT, CRASHED, ABSENT, HEALTHY])
    happened, error = happenings(world)
    assert error is None
    gave_up = StepGaveUp("inference", 1, "exit 137, killed", "last words of inference")
    assert gave_up in happened
    assert StepPassed("inference", 2, "healthy") in happened
    assert [c for c in stack.calls if "inference" in c][:3] == [
        "start inference",
        "remove inference",
        "start inference",
    ]


def test_an_engine_that_always_dies_ends_after_its_tries_and_is_left_stopped() -> None:
    stack = FakeStack()
    happened, error = happenings(a_world(stack=stack, inference=[ABSENT, ABSENT, CRASHED]), tries=3)
    assert isinstance(error, GateStayedShut)
    assert error.exit_code == 7
    assert error.next_step == "python3 -m orchestrator logs inference"
    assert stack.calls.count("start inference") == 3
    assert stack.calls[-1] == "stop inference"
    assert [e.attempt for e in happened if isinstance(e, StepGaveUp)] == [1, 2, 3]


def test_attempts_are_spaced_ever_wider() -> None:
    world = a_world(inference=[ABSENT, ABSENT, CRASHED])
    happenings(world, tries=4)
    assert world.clock.now() == 2 + 4 + 8


def test_an_engine_that_loads_on_is_waited_for_longer_than_its_patience() -> None:
    """404 GB from a disk of 100 MB/s take 67 minutes, and the patience is 60."""
    loading = [
        replace(STARTING, engine=EngineSays(status="loading", loaded_bytes=n, total_bytes=40))
        for n in range(40)
    ]
    happened, error = happenings(a_world(inference=[ABSENT, ABSENT, *loading, HEALTHY]), tries=1)
    assert error is None
    assert StepPassed("inference", 1, "healthy") in happened


def test_a_load_that_stands_still_ends_when_patience_does() -> None:
    said = EngineSays(status="loading", loaded_bytes=7, total_bytes=40)
    _, error = happenings(a_world(inference=[replace(STARTING, engine=said)]), tries=1)
    assert isinstance(error, GateStayedShut)
    assert error.why is not None
    assert error.why.startswith("no further after 10 s: ")


def test_a_gate_that_never_opens_ends_when_patience_does() -> None:
    happened, error = happenings(a_world(inference=[STARTING]), tries=1)
    assert isinstance(error, GateStayedShut)
    assert error.why == "still not so after 10 s: starting"
    assert isinstance(happened[-1], StepGaveUp)


@pytest.mark.parametrize(
    ("exit_code", "kind", "starts"),
    [
        (6, VerificationFailed, 1),
        (2, BadConfiguration, 1),
        (5, FetchFailed, 1),
        (143, FetchFailed, 1),
        (1, GateStayedShut, 3),
    ],
)
def test_the_weights_job_is_retried_only_where_another_try_can_help(
    exit_code: int, kind: type[OrchestratorError], starts: int
) -> None:
    stack = FakeStack()
    failed = replace(DONE, exit_code=exit_code, unproven=("m.gguf: missing",), last_line="said so")
    _, error = happenings(a_world(stack=stack, weights=[ABSENT, ABSENT, failed]), tries=3)
    assert type(error) is kind
    assert error.exit_code == {1: 7, 143: 5}.get(exit_code, exit_code)
    assert stack.calls.count("start weights") == starts
    assert not any("inference" in call or "gateway" in call for call in stack.calls)


def test_a_job_at_work_is_attached_to_and_not_started_again() -> None:
    stack = FakeStack()
    running = Sighting(status="running", unproven=("m.gguf: the file is missing",))
    happened, error = happenings(a_world(stack=stack, weights=[running, running, running, DONE]))
    assert error is None
    assert "start weights" not in stack.calls
    assert "remove weights" not in stack.calls
    assert StepPassed("weights", 1, "every byte proven") in happened


def test_what_the_job_says_of_itself_reaches_whoever_watches() -> None:
    running = Sighting(status="running", unproven=("missing",), progress=A_PROGRESS)
    happened, _ = happenings(a_world(weights=[ABSENT, ABSENT, running, DONE]))
    looks = [e for e in happened if isinstance(e, GateChecked) and e.step == "weights"]
    assert [look.progress for look in looks] == [A_PROGRESS, None]
    assert looks[0].result.reason == "fetching"


def test_a_job_that_ends_well_without_a_proof_is_a_failed_verification() -> None:
    lying = replace(DONE, unproven=("there is no readable receipt",))
    _, error = happenings(a_world(weights=[ABSENT, ABSENT, lying]))
    assert isinstance(error, VerificationFailed)
    assert "no readable receipt" in error.why


def test_a_wrong_reply_is_not_retried() -> None:
    stack = FakeStack()
    wrong = replace(REPLIED, replies=(Reply(text="Rome", first_token_s=0.1),) * 2)
    _, error = happenings(a_world(stack=stack, first_token=[ABSENT, ABSENT, wrong]), tries=3)
    assert isinstance(error, AcceptanceNotMet)
    assert error.exit_code == 11
    assert "'Rome'" in error.why


def test_a_crash_on_the_second_prompt_starts_the_engine_anew() -> None:
    stack = FakeStack()
    before = Sighting(status="running", container_id="i1", restarts=0)
    after = replace(before, restarts=1, replies=REPLIED.replies[:1])
    world = a_world(stack=stack, first_token=[before, before, after, ABSENT, REPLIED])
    happened, error = happenings(world)
    assert error is None
    assert StepPassed("first token", 2, "first token after 0.10 s") in happened
    assert "remove inference" in stack.calls


def test_a_refusal_by_compose_is_an_attempt_that_failed() -> None:
    stack = FakeStack(refusals={"gateway": ["port is already allocated"]})
    happened, error = happenings(a_world(stack=stack))
    assert error is None
    gave_up = StepGaveUp("gateway", 1, "port is already allocated", "last words of gateway")
    assert gave_up in happened


def test_a_build_that_fails_once_is_tried_again() -> None:
    happened, error = happenings(a_world(images=FakeImages(failures=["connection reset"])))
    assert error is None
    gave_up = StepGaveUp("base system", 1, "connection reset", "its last words")
    assert gave_up in happened
    assert ActionProgressed("base system", "making rootfs") in happened


def test_a_build_that_always_fails_is_a_failed_fetch() -> None:
    _, error = happenings(a_world(images=FakeImages(failures=["no route"] * 9)), tries=2)
    assert isinstance(error, FetchFailed)
    assert error.exit_code == 5
    assert error.why == "no route"


def test_every_attempt_says_why_it_is_made() -> None:
    happened, _ = happenings(a_world())
    started = [e for e in happened if isinstance(e, StepStarted)]
    assert len(started) == len(STEPS)
    assert all(event.cause for event in started)


def test_a_blind_lookout_is_an_error_not_an_answer() -> None:
    class BlindAfterTwoLooks(ScriptedLookout):
        def look(self, gate: Gate) -> Sighting:
            if not self.script["weights"]:
                raise DockerUnavailable("Docker is gone", why="socket closed", next_step="start it")
            return (
                super().look(gate)
                if not hasattr(gate, "service")
                else self.script["weights"].pop(0)
            )

    images = FakeImages()
    running = Sighting(status="running")
    lookout = BlindAfterTwoLooks({"weights": [ABSENT, ABSENT, running]}, images)
    world = World(images, FakeStack(), lookout, FakeClock())
    _, error = happenings(world)
    assert isinstance(error, DockerUnavailable)
    assert world.clock.now() == 1


def test_a_container_in_dockers_back_off_is_replaced_at_once() -> None:
    stack = FakeStack()
    restarting = Sighting(status="restarting", container_id="old", restarts=9, exit_code=1)
    _, error = happenings(
        a_world(stack=stack, inference=[restarting, restarting, replace(HEALTHY, container_id="n")])
    )
    assert error is None
    assert stack.calls.index("remove inference") < stack.calls.index("start inference")


@pytest.mark.parametrize(("exit_code", "ends_with"), [(2, 2), (6, 6)])
def test_a_service_that_refuses_what_it_was_given_is_not_tried_again(
    exit_code: int, ends_with: int
) -> None:
    stack = FakeStack()
    refused = Sighting(status="exited", container_id="i1", exit_code=exit_code)
    _, error = happenings(a_world(stack=stack, inference=[ABSENT, ABSENT, refused]), tries=3)
    assert error is not None
    assert error.exit_code == ends_with
    assert stack.calls.count("start inference") == 1
    assert stack.calls[-1] == "stop inference"


def test_a_changed_key_is_told_with_the_way_out_and_the_engine_goes_on() -> None:
    stack = FakeStack()
    unknown = Sighting(status="running", container_id="i1", http_status=401)
    _, error = happenings(a_world(stack=stack, first_token=[ABSENT, ABSENT, unknown]))
    assert isinstance(error, BadConfiguration)
    assert error.next_step.startswith("python3 -m orchestrator down, then")
    assert "stop inference" not in stack.calls


def test_metrics_that_were_turned_off_take_their_container_with_them() -> None:
    stack = FakeStack(current=True)
    world = a_world(
        stack,
        weights=[DONE],
        inference=[HEALTHY],
        gateway=[READY],
        first_token=[REPLIED],
        webui=[READY],
        prometheus=[READY, READY, ABSENT],
    )
    happened = list(execute(a_plan(("prometheus",)), world))
    assert stack.calls == ["remove prometheus"]
    assert happened[-1] == StepPassed("prometheus", 1, "no container")


@pytest.mark.parametrize(("on", "present"), [(True, ("prometheus",)), (False, ())])
def test_metrics_that_are_on_or_were_never_on_lose_nothing(
    on: bool, present: tuple[str, ...]
) -> None:
    stack = FakeStack()
    list(execute(a_plan(present, metrics=on), a_world(stack)))
    assert ("start prometheus" in stack.calls) == on
    assert not [call for call in stack.calls if call.startswith("remove")]


def test_a_container_that_will_not_go_is_named_with_the_way_out() -> None:
    world = a_world(prometheus=[READY])
    with pytest.raises(GateStayedShut) as raised:
        list(execute(a_plan(("prometheus",)), world))
    assert raised.value.what == "prometheus: prometheus could not be removed"
    assert "rm -sf prometheus" in raised.value.next_step

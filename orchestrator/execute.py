"""Carry out a plan, one step at a time, telling each event as it happens.

The only place that retries, and the only user of tenacity: once over attempts at a step, once over
looks at its gate. Errors while looking go straight up; only answers are retried.
"""

from collections.abc import Callable, Generator, Iterator

from tenacity import RetryCallState, RetryError, Retrying, retry_if_result, wait_fixed
from tenacity.stop import stop_after_attempt
from tenacity.wait import wait_exponential
from typing_extensions import assert_never

from orchestrator.core.errors import (
    AcceptanceNotMet,
    ActionFailed,
    BadConfiguration,
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
from orchestrator.core.gates import (
    Fault,
    GateResult,
    Generates,
    ImagePresent,
    Sighting,
    Verdict,
    judge,
    with_ailments,
)
from orchestrator.core.plan import (
    AssembleRootfs,
    BuildImage,
    Plan,
    PullImage,
    RemoveService,
    RunJob,
    StartService,
    Step,
)
from orchestrator.world import Clock, Lookout, World

WORTH_ANOTHER_TRY = frozenset({Fault.CRASH})
RUNNING = frozenset({"running", "restarting"})


def execute(plan: Plan, world: World) -> Generator[Event, None, None]:
    """Yield what happens. Raises the OrchestratorError that ends the run."""
    for step in plan.steps:
        if _takes_its_time(step):
            yield StepStarted(step.name, 1, step.cause)
        if kept := _already_so(step, world):
            yield kept
        else:
            yield from _carry_out(step, plan.profile, world)


def watch(step: Step, profile: str, lookout: Lookout, clock: Clock) -> Generator[Event, None, None]:
    """Only look until the step's gate opens; somebody else acts. Raises as `execute` does."""
    result = yield from _await_gate(step, lookout.look(step.gate), lookout, clock)
    if result.verdict is not Verdict.OPEN:
        raise _error(step, profile, result)


def _takes_its_time(step: Step) -> bool:
    """To look is to ask the model, which may think for minutes: said before, not after."""
    return isinstance(step.gate, Generates)


def _already_so(step: Step, world: World) -> StepKept | None:
    seen = world.lookout.look(step.gate)
    result = judge(step.gate, seen, seen)
    if result.verdict is not Verdict.OPEN:
        return None
    match step.action:
        case StartService(service) if not world.stack.is_current(service):
            return None
        case _:
            return StepKept(step.name, result.reason)


def _carry_out(step: Step, profile: str, world: World) -> Generator[Event, None, None]:
    attempts = Retrying(
        retry=retry_if_result(_deserves_another_try),
        stop=stop_after_attempt(step.patience.tries),
        wait=wait_exponential(multiplier=step.patience.pause_s, max=60),
        sleep=world.clock.sleep,
    )
    result = GateResult(Verdict.WAIT, "not tried")
    try:
        for attempt in attempts:
            number = attempt.retry_state.attempt_number
            if number > 1:
                _clear_away(step, world)
            result = yield from _attempt(step, number, world)
            attempt.retry_state.set_result(result)
    except RetryError:
        pass  # the last result says all
    if result.verdict is not Verdict.OPEN:
        _leave_at_rest(step, result.fault, world)
        raise _error(step, profile, result)


def _deserves_another_try(result: GateResult) -> bool:
    return result.verdict is not Verdict.OPEN and result.fault in WORTH_ANOTHER_TRY


def _attempt(step: Step, number: int, world: World) -> Generator[Event, None, GateResult]:
    if number > 1 or not _takes_its_time(step):
        yield StepStarted(step.name, number, step.cause)
    first = world.lookout.look(step.gate)
    if first.status == "restarting":
        _clear_away(step, world)  # it would sit out Docker's ever longer pauses
    try:
        for line in _act(step, first, world):
            yield ActionProgressed(step.name, line)
    except ActionFailed as failure:
        world.lookout.look(step.gate)  # where Docker itself is gone, this says so
        result = _explained(step, GateResult(Verdict.SHUT, failure.reason), world)
        words = failure.last_words or _last_words(step, world)
        yield StepGaveUp(step.name, number, result.reason, words)
        return result
    result = yield from _await_gate(step, first, world.lookout, world.clock)
    result = _explained(step, result, world)
    if result.verdict is Verdict.OPEN:
        yield StepPassed(step.name, number, result.reason)
    else:
        yield StepGaveUp(step.name, number, result.reason, _last_words(step, world))
    return result


def _act(step: Step, seen: Sighting, world: World) -> Iterator[str]:
    match step.action:
        case RunJob() if seen.status in RUNNING:
            return  # attach: a start would replace the container where its configuration differs
        case AssembleRootfs(ref):
            yield from world.images.assemble_rootfs(ref)
        case PullImage(ref):
            yield from world.images.pull(ref)
        case BuildImage(build):
            yield from world.images.build(build)
        case RunJob(service) | StartService(service):
            world.stack.start(service)
        case RemoveService(service):
            world.stack.remove(service)
        case _:
            assert_never(step.action)


def _await_gate(
    step: Step, first: Sighting, lookout: Lookout, clock: Clock
) -> Generator[Event, None, GateResult]:
    started = clock.now()
    last = GateResult(Verdict.WAIT, "never looked")
    deadline = _Deadline(step.patience.within_s, clock.now)
    looks = Retrying(
        retry=retry_if_result(lambda result: result.verdict is Verdict.WAIT),
        stop=deadline.has_passed,
        wait=wait_fixed(step.patience.every_s),
        sleep=clock.sleep,
    )
    try:
        for look in looks:
            seen = lookout.look(step.gate)
            deadline.saw(seen)
            last = judge(step.gate, seen, first)
            look.retry_state.set_result(last)
            yield GateChecked(step.name, last, clock.now() - started, seen.progress)
    except RetryError:
        return GateResult(Verdict.SHUT, f"{deadline.words()}: {last.reason}")
    return last


def _explained(step: Step, result: GateResult, world: World) -> GateResult:
    """By what ails the cards of a service that did not come up: looked at only then."""
    service = _service(step)
    if service is None or result.verdict is Verdict.OPEN:
        return result
    return with_ailments(result, world.lookout.ailments(service))


class _Deadline:
    """Busy is not dead: an engine that has loaded more since the last look has all of its time anew."""

    def __init__(self, within_s: float, now: Callable[[], float]) -> None:
        self._within_s = within_s
        self._now = now
        self._ends = now() + within_s
        self._loaded_bytes = 0

    def saw(self, seen: Sighting) -> None:
        if seen.engine is not None and seen.engine.loaded_bytes > self._loaded_bytes:
            self._loaded_bytes = seen.engine.loaded_bytes
            self._ends = self._now() + self._within_s

    def has_passed(self, _: RetryCallState) -> bool:
        # Tenacity's own stop_after_delay reads the process's clock, not ours.
        return self._now() >= self._ends

    def words(self) -> str:
        still = "no further" if self._loaded_bytes else "still not so"
        return f"{still} after {self._within_s:g} s"


def _service(step: Step) -> str | None:
    return None if isinstance(step.gate, ImagePresent) else step.gate.service


def _last_words(step: Step, world: World) -> str:
    service = _service(step)
    return "" if service is None else world.lookout.tail(service)


def _clear_away(step: Step, world: World) -> None:
    if (service := _service(step)) is not None:
        world.stack.remove(service)


def _leave_at_rest(step: Step, fault: Fault, world: World) -> None:
    """Stop what does not run, and keep it as evidence: its restart policy would go on for ever."""
    if isinstance(step.action, StartService) and fault not in {Fault.KEY, Fault.ACCEPTANCE}:
        world.stack.stop(step.action.service)


def _error(step: Step, profile: str, result: GateResult) -> OrchestratorError:
    service = _service(step)
    if service is None:
        return FetchFailed(
            f"{step.name} could not be made",
            why=result.reason,
            next_step="check the network and free disk, then: python3 -m orchestrator up",
        )
    if isinstance(step.action, RemoveService):
        return GateStayedShut(
            f"{step.name}: {service} could not be removed",
            why=result.reason,
            next_step=f"docker compose --env-file .state/stack.env rm -sf {service}, then: "
            "python3 -m orchestrator up",
        )
    logs = f"python3 -m orchestrator logs {service}"
    incomplete = (
        FetchFailed,
        "the weights are not complete",
        f"{logs}; to go on from here: python3 -m orchestrator pull --profile {profile}",
    )
    kind, what, next_step = {
        Fault.CRASH: (
            GateStayedShut,
            f"{step.name}: {service} did not come up in {step.patience.tries} tries",
            logs,
        ),
        Fault.SOURCE: incomplete,
        Fault.STOPPED: incomplete,
        Fault.CONFIGURATION: (BadConfiguration, f"{service} can't use its configuration", logs),
        Fault.VERIFICATION: (
            VerificationFailed,
            "the weights are not what the lock says",
            f"{logs}; then: python3 -m orchestrator verify --repair --profile {profile}",
        ),
        Fault.KEY: (
            BadConfiguration,
            "a secret was changed while the stack ran",
            "python3 -m orchestrator down, then: python3 -m orchestrator up",
        ),
        Fault.CARD: (
            GateStayedShut,
            f"{step.name}: a GPU of this host failed",
            "do what is said there, then: python3 -m orchestrator up",
        ),
        Fault.ACCEPTANCE: (AcceptanceNotMet, "the stack runs, but its reply is wrong", logs),
    }[result.fault]
    return kind(what, why=result.reason, next_step=next_step)

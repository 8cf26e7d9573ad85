"""A gate is a question about the running stack; `judge` turns what was seen into an answer.

Three answers, not two: a gate that is merely not open *yet* is worth waiting for,
a gate that can no longer open is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from typing_extensions import assert_never

from orchestrator.core.probes.nvidia_health import Ailment
from orchestrator.core.telling import duration, stage
from wire.order import Progress


@dataclass(frozen=True, slots=True)
class ImagePresent:
    """The local image store holds this reference."""

    ref: str


@dataclass(frozen=True, slots=True)
class Proven:
    """The one-shot service is done, and a valid receipt proves every locked file."""

    service: str


@dataclass(frozen=True, slots=True)
class Healthy:
    """Docker reports the service's own healthcheck as healthy."""

    service: str


@dataclass(frozen=True, slots=True)
class Answers:
    """The URL answers 200."""

    service: str
    url: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The service has no container."""

    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Generates:
    """Every one of `times` requests through the gateway brings a reply that holds `expected`.

    More than once: engines are known to fail on the second prompt. `first_within_s`: how long the
    engine may say nothing of the first, in which it may still compile; `next_within_s`: of the others.
    """

    service: str
    url: str
    model: str
    prompt: str
    expected: str
    max_tokens: int
    times: int
    first_within_s: float = 300.0
    next_within_s: float = 300.0


Gate = ImagePresent | Proven | Healthy | Answers | Gone | Generates


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    text: str
    first_token_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSays:
    """What an engine's own healthcheck printed of how far it is. `eta_s`: None where it can't tell yet.

    `about`: which kernels it runs with, on what, in words.
    """

    status: str
    loaded_bytes: int = 0
    total_bytes: int = 0
    read_bytes: int | None = None
    eta_s: float | None = None
    reason: str = ""
    about: tuple[str, ...] = ()

    def words(self) -> str:
        said = self.status
        if self.total_bytes:
            percent = 100 * self.loaded_bytes / self.total_bytes
            said += f" {self.loaded_bytes / 1e9:.1f} of {self.total_bytes / 1e9:.1f} GB"
            said += f" ({percent:.0f} %)"
        elif self.read_bytes:
            said += f", {self.read_bytes / 1e9:.1f} GB read from disk"
        if self.eta_s is not None:
            said += f", {duration(self.eta_s)} left"
        return f"{said}: {self.reason}" if self.reason else said


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One look at a gate's subject. Only what the gate asks for is filled in.

    `unproven`: reasons why the receipt does not prove the lock; None where nobody looked.
    `trouble`: why a question over HTTP had no good answer, in a few words.
    `progress`: what a running job says of itself. `engine`: what an engine does.
    """

    status: str | None = None
    container_id: str | None = None
    health: str | None = None
    exit_code: int | None = None
    out_of_memory: bool = False
    restarts: int = 0
    last_line: str = ""
    image_present: bool = False
    unproven: tuple[str, ...] | None = None
    progress: Progress | None = None
    engine: EngineSays | None = None
    http_status: int | None = None
    replies: tuple[Reply, ...] = ()
    trouble: str = ""


class Verdict(Enum):
    OPEN = "open"
    WAIT = "wait"
    SHUT = "shut"


class Fault(Enum):
    """Why a gate is shut. Only a crash is worth another attempt: the job itself tries sources again."""

    CRASH = "crash"
    SOURCE = "source"
    STOPPED = "stopped"
    CONFIGURATION = "configuration"
    VERIFICATION = "verification"
    KEY = "key"
    ACCEPTANCE = "acceptance"
    CARD = "card"


ENGINE_FAILED = "failed"  # kt_legacy_engine.stage
# The gateway's error code where the engine does not accept its key.
ENGINE_REFUSES_GATEWAY = "engine_refused_gateway"
# Exit codes of the stack's own programs, the same as the orchestrator's.
# 130 and 143: after SIGINT and SIGTERM, so somebody wanted it to end.
FAULT_OF_EXIT_CODE = {
    2: Fault.CONFIGURATION,
    3: Fault.CONFIGURATION,  # no card that the engine can use
    5: Fault.SOURCE,
    6: Fault.VERIFICATION,
    130: Fault.STOPPED,
    143: Fault.STOPPED,
    78: Fault.CONFIGURATION,  # no kernels for this processor
}


# What an engine without its card ends with; who was refused a key or weights has no other card.
_OF_THE_ENGINE = frozenset({Fault.CRASH, Fault.CONFIGURATION})


@dataclass(frozen=True, slots=True)
class GateResult:
    verdict: Verdict
    reason: str
    fault: Fault = Fault.CRASH


def with_ailments(result: GateResult, found: Sequence[Ailment]) -> GateResult:
    """What ails an engine's cards, where its gate is shut. After a fatal one no other try helps."""
    if result.verdict is not Verdict.SHUT or result.fault not in _OF_THE_ENGINE or not found:
        return result
    if not any(ailment.fatal for ailment in found):
        reason = "; ".join([result.reason, *(ailment.words for ailment in found)])
        return GateResult(result.verdict, reason, result.fault)
    fatal = [ailment.words for ailment in found if ailment.fatal]
    return GateResult(result.verdict, "; ".join([*fatal, result.reason]), Fault.CARD)


def judge(gate: Gate, seen: Sighting, first: Sighting) -> GateResult:
    """Judge what is `seen` now, against the `first` look, taken before the attempt's action."""
    match gate:
        case ImagePresent():
            return _judge_image(seen)
        case Proven():
            return _judge_proven(seen)
        case Gone():
            return _judge_gone(seen)
        case Healthy() | Answers() | Generates():
            return _judge_service(gate, seen, first)
        case _:
            assert_never(gate)


def _judge_image(seen: Sighting) -> GateResult:
    if seen.image_present:
        return GateResult(Verdict.OPEN, "present")
    return GateResult(Verdict.WAIT, "not in the image store")


def _judge_gone(seen: Sighting) -> GateResult:
    if seen.status is None:
        return GateResult(Verdict.OPEN, "no container")
    return GateResult(Verdict.WAIT, f"still there: {seen.status}")


def _judge_proven(seen: Sighting) -> GateResult:
    if seen.status in {"running", "restarting"}:
        said = stage(seen.progress) if seen.progress else seen.last_line
        return GateResult(Verdict.WAIT, said or seen.status)
    if seen.unproven == ():
        return GateResult(Verdict.OPEN, "every byte proven")
    if seen.status in {None, "created"}:
        return GateResult(Verdict.WAIT, "not started")
    if seen.out_of_memory:
        return GateResult(Verdict.SHUT, "killed: out of memory")
    if seen.exit_code == 0:
        missing = "; ".join(seen.unproven or ("nobody looked",))
        return GateResult(Verdict.SHUT, f"not proven: {missing}", Fault.VERIFICATION)
    fault = FAULT_OF_EXIT_CODE.get(seen.exit_code or 0, Fault.CRASH)
    reason = _with_last_line(describe_exit(seen.exit_code), seen)
    return GateResult(Verdict.SHUT, reason, fault)


def describe_exit(code: int | None) -> str:
    """An exit status in words. Above 128 it is a signal's number plus 128 (POSIX shells' rule)."""
    if code is None:
        return "ended"
    named = {132: "illegal instruction", 137: "killed", 139: "segmentation fault", 143: "stopped"}
    return f"exit {code}, {named[code]}" if code in named else f"exit {code}"


def _judge_service(
    gate: Healthy | Answers | Generates, seen: Sighting, first: Sighting
) -> GateResult:
    if seen.out_of_memory:
        return GateResult(Verdict.SHUT, "killed: out of memory")
    # A restart policy hides a crash: the container is "running" again and its exit code is gone.
    if seen.restarts > _restarts_before(seen, first):
        died = f" ({describe_exit(seen.exit_code)})" if seen.exit_code else ""
        reason = f"crashed{died} and was restarted"
        return GateResult(Verdict.SHUT, _with_last_line(reason, seen), _refusal(seen))
    if seen.status in {"exited", "dead"}:
        reason = describe_exit(seen.exit_code)
        return GateResult(Verdict.SHUT, _with_last_line(reason, seen), _refusal(seen))
    match gate:
        case Healthy():
            return _judge_health(seen)
        case Answers():
            return _judge_answer(seen)
        case Generates():
            return _judge_replies(gate, seen)
        case _:
            assert_never(gate)


def _refusal(seen: Sighting) -> Fault:
    """A service that refuses what it was given says so with its exit code; the rest is a crash."""
    fault = FAULT_OF_EXIT_CODE.get(seen.exit_code or 0, Fault.CRASH)
    return fault if fault in {Fault.CONFIGURATION, Fault.VERIFICATION} else Fault.CRASH


def _with_last_line(reason: str, seen: Sighting) -> str:
    return f"{reason}: {seen.last_line}" if seen.last_line else reason


def _restarts_before(seen: Sighting, first: Sighting) -> int:
    """Restarts not to be held against this attempt: those of the same container, still counted.

    Docker sets the count back to zero whenever somebody starts the container.
    """
    same = seen.container_id == first.container_id and seen.restarts >= first.restarts
    return first.restarts if same else 0


def _judge_health(seen: Sighting) -> GateResult:
    if seen.health == "healthy":
        return GateResult(Verdict.OPEN, "healthy")
    # Docker calls it unhealthy for as long as it says so: a load that goes on is none the worse.
    if seen.engine is not None and seen.status == "running":
        failed = seen.engine.status == ENGINE_FAILED
        return GateResult(Verdict.SHUT if failed else Verdict.WAIT, seen.engine.words())
    return GateResult(Verdict.WAIT, seen.health or seen.status or "not created")


def _judge_answer(seen: Sighting) -> GateResult:
    if seen.http_status == 200:  # noqa: PLR2004 - HTTP's own number
        return GateResult(Verdict.OPEN, "answers")
    return GateResult(Verdict.WAIT, seen.trouble or "no answer yet")


def _judge_replies(gate: Generates, seen: Sighting) -> GateResult:
    for reply in seen.replies:
        if gate.expected not in reply.text:
            reason = (
                f"asked {gate.prompt!r}, the reply is {reply.text!r}, without {gate.expected!r}"
            )
            return GateResult(Verdict.SHUT, reason, Fault.ACCEPTANCE)
    if seen.http_status == 401:  # noqa: PLR2004 - HTTP's own number
        reason = "the gateway does not know the key in the secrets folder: it was changed since"
        return GateResult(Verdict.SHUT, reason, Fault.KEY)
    if ENGINE_REFUSES_GATEWAY in seen.trouble:
        reason = "engine and gateway hold different keys: the secrets folder was changed since"
        return GateResult(Verdict.SHUT, reason, Fault.KEY)
    if len(seen.replies) < gate.times:
        trouble = seen.trouble or "no reply yet"
        # An engine that answers once and then no more is another trouble than one that never did.
        number = f"reply {len(seen.replies) + 1} of {gate.times}: " if seen.replies else ""
        return GateResult(Verdict.WAIT, number + trouble)
    return GateResult(Verdict.OPEN, f"first token after {seen.replies[-1].first_token_s:.2f} s")

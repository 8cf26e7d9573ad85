"""A plan as text: for the eye, for Compose, for programs."""

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from typing_extensions import assert_never

from orchestrator.core.advice import Advice
from orchestrator.core.gates import Answers, Gate, Generates, Gone, Healthy, ImagePresent, Proven
from orchestrator.core.plan import (
    Action,
    AssembleRootfs,
    BuildImage,
    Plan,
    PullImage,
    RemoveService,
    RunJob,
    StartService,
    Step,
)
from orchestrator.core.settings import Settled

LEAST_WIDTH = 40


def as_text(plan: Plan, present: frozenset[str] = frozenset(), width: int = 80) -> str:
    """Two lines a step: what is done and what must then be true; and why.

    `present`: names of steps whose image is here already, so that nothing is done.
    """
    told = (
        line
        for n, step in enumerate(plan.steps, start=1)
        for line in (
            *_folded(
                f"{n:>2}. ",
                f"{step.name}: {_describe_step(step)}, then: {describe_gate(step.gate)}",
                width,
            ),
            *_folded("    ", "it is here already" if step.name in present else step.cause, width),
        )
    )
    return "".join(f"{line}\n" for line in told)


def _folded(start: str, text: str, width: int) -> list[str]:
    return wrap(
        text,
        max(width, LEAST_WIDTH),
        initial_indent=start,
        subsequent_indent=" " * (len(start) + 2),
        break_on_hyphens=False,
    )


def as_record(plan: Plan | None, advice: Advice) -> dict[str, Any]:
    """The plan as JSON-ready values, with the settings behind it and where each came from.

    `plan`: None where only the fit could be judged.
    """
    settled = advice.settled
    settings = settled.settings.model_dump(mode="json")
    return {
        "profile": advice.profile.name,
        "settings": {
            name: {"value": value, "from": settled.origins[name]}
            for name, value in settings.items()
        },
        "env": dict(plan.env) if plan else None,
        "steps": [_step_record(step) for step in plan.steps] if plan else None,
    }


def _step_record(step: Step) -> dict[str, Any]:
    return {
        "name": step.name,
        "action": _describe_step(step),
        "gate": describe_gate(step.gate),
        "within_s": step.patience.within_s,
        "tries": step.patience.tries,
        "cause": step.cause,
    }


def settings_as_text(settled: Settled) -> str:
    """One line a setting: name, value, origin."""
    values = settled.settings.model_dump(mode="json")
    width = max(map(len, values))
    return "".join(
        f"{name.ljust(width)}  {'' if value is None else value}  [{settled.origins[name]}]\n"
        for name, value in values.items()
    )


def _describe_step(step: Step) -> str:
    # The action of this step is for after a crash; what it does is in its gate.
    return "ask the model" if isinstance(step.gate, Generates) else describe_action(step.action)


def describe_action(action: Action) -> str:
    match action:
        case AssembleRootfs(ref):
            return f"assemble {ref}"
        case PullImage(ref):
            return f"pull {ref}"
        case BuildImage(build):
            return f"build {build.ref}"
        case RunJob(service):
            return f"run {service}"
        case StartService(service):
            return f"start {service}"
        case RemoveService(service):
            return f"remove {service}"
        case _:
            assert_never(action)


def describe_gate(gate: Gate) -> str:
    match gate:
        case ImagePresent():
            return "image is present"
        case Proven():
            return "every byte is proven"
        case Healthy():
            return "healthy"
        case Gone():
            return "no container"
        case Answers(_, url):
            return f"{url} answers"
        case Generates():
            return f"replies with {gate.expected!r}, {gate.times} times"
        case _:
            assert_never(gate)


def as_env_file(env: Mapping[str, str]) -> str:
    """Sorted KEY='value' lines. Single quotes: Compose then reads #, $ and spaces as they are."""
    return "".join(f"{key}='{value}'\n" for key, value in sorted(env.items()))


def from_env_file(text: str) -> dict[str, str]:
    """What `as_env_file` wrote."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key: value.strip("'") for key, value in pairs}

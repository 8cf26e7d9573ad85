"""The commands that judge and change nothing: plan, recommend, doctor."""

import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import fill
from typing import Any

from orchestrator.adapters import profile_files
from orchestrator.adapters.environment import read_language
from orchestrator.adapters.host import measure_disk, save_facts
from orchestrator.adapters.lookout import EngineLookout
from orchestrator.choosing import (
    Considered,
    consider,
    elsewhere,
    first_advice,
    previous_profile,
    ranking_of,
    read_facts,
    refuse_misplaced,
    refuse_unfit,
    with_reach,
)
from orchestrator.commands import Typed, print_json
from orchestrator.core import render, render_fit
from orchestrator.core.advice import Advice
from orchestrator.core.checks.captured import naming_files
from orchestrator.core.checks.finding import Finding, Said, Severity
from orchestrator.core.errors import (
    BadConfiguration,
    DockerUnavailable,
    OrchestratorError,
    UnfitHost,
)
from orchestrator.core.facts import HostFacts
from orchestrator.core.gates import ImagePresent
from orchestrator.core.preflight import refuse_unknown
from orchestrator.core.recommend import least_demanding, recommended, startable
from orchestrator.core.settings import Layer, Settings, settle
from orchestrator.doctoring import doctor_record, doctor_text, doctor_title
from orchestrator.place import Place, settings_without_profile
from orchestrator.prepare import Prepared, prepare


def plan(typed: Typed) -> int:
    """The fit first, also where the rest can't be planned from here; of words that are wrong, nothing else."""
    layers, settings, place = _settled(typed)
    lookout = None if typed.saved_facts else EngineLookout(settings.project)
    try:
        considered = consider(layers, place, lookout, typed.saved_facts)
        refuse_misplaced(considered)
        refuse_unknown("--force", typed.forced, considered.advice.findings)
    except (UnfitHost, BadConfiguration) as error:  # there is nothing that a plan could be about
        if typed.as_json:
            print_json({"profile": None, "refused": _refusal(error)}, indent=2)
        raise
    prepared: Prepared | None = None
    trouble: OrchestratorError | None = None
    try:
        if lookout is None:
            refuse_unfit(considered, typed.forced)
        else:
            prepared = prepare(considered, place, lookout, typed.forced)
    except OrchestratorError as error:
        trouble = error
    judged = prepared.considered if prepared else considered
    if typed.as_json:
        print_json(_plan_record(judged, prepared, trouble), indent=2)
    else:
        _print_plan(typed, judged, prepared, lookout)
    if trouble is not None:
        raise trouble
    return 0


def _plan_record(
    considered: Considered, prepared: Prepared | None, trouble: OrchestratorError | None
) -> dict[str, Any]:
    advice = considered.advice
    return {
        **render.as_record(prepared.plan if prepared else None, advice),
        **render_fit.advice_as_record(advice),
        "findings": doctor_record(advice.findings),
        "refused": None if trouble is None else _refusal(trouble),
    }


def _refusal(error: OrchestratorError) -> dict[str, str]:
    return {"what": error.what, "why": error.why, "next_step": error.next_step}


def _print_plan(
    typed: Typed,
    considered: Considered,
    prepared: Prepared | None,
    lookout: EngineLookout | None,
) -> None:
    chosen = f"profile {considered.profile.name}: {considered.pick.reason}"
    print(fill(chosen, render_fit.WIDTH, subsequent_indent="  ") + "\n")
    print(render_fit.advice_as_text(considered.advice))
    if prepared is not None and lookout is not None:
        present = frozenset(
            step.name
            for step in prepared.plan.steps
            if isinstance(step.gate, ImagePresent) and lookout.has_image(step.gate.ref)
        )
        print("Steps")
        width = shutil.get_terminal_size((80, 24)).columns
        print(render.as_text(prepared.plan, present, width), end="")
    if typed.verbose:
        print("\nSettings, and where each comes from:")
        print(render.settings_as_text(considered.advice.settled), end="")
    sys.stdout.flush()


def recommend(typed: Typed) -> int:
    """Every profile ranked for this host; exit code 3 where none can run."""
    layers, _, place = _settled(typed)
    facts = _facts(typed, layers, place)
    ranking = ranking_of(layers, place, facts)
    best = recommended(ranking)
    if typed.as_json:
        print_json(render_fit.ranking_as_record(ranking, best), indent=2)
    else:
        print(render_fit.ranking_as_text(ranking, best), end="")
    return 0 if best else UnfitHost.exit_code


def doctor(typed: Typed, *, only: Sequence[str], save_to: Path | None) -> int:
    """Every check of this host, for the profile named, serving or recommended; 3 with a blocker."""
    layers, settings, place = _settled(typed)
    facts = _facts(typed, layers, place)
    if save_to is not None:
        save_facts(save_to, facts)
        print(
            f"Saved: {save_to}. It holds no names, addresses or serial numbers of this host.",
            file=sys.stderr if typed.as_json else sys.stdout,
        )
    advice, how = _subject(layers, place, facts)
    found = _only(advice.findings, only)
    if typed.saved_facts is not None and typed.saved_facts.is_dir():
        found = naming_files(found)
    if typed.as_json:
        print_json({"profile": advice.profile.name, "checks": doctor_record(found)}, indent=2)
    else:
        language = settings.language or read_language()
        width = shutil.get_terminal_size((80, 24)).columns
        print(doctor_title(advice.profile.name, how, language) + "\n")
        print(doctor_text(found, language, width), end="")
    blocked = any(finding.severity is Severity.BLOCK for finding in found)
    return UnfitHost.exit_code if blocked else 0


def _settled(typed: Typed) -> tuple[tuple[Layer, ...], Settings, Place]:
    layers, settings, place = settings_without_profile(typed.root, typed.flags)
    return layers, settings, elsewhere(place) if typed.saved_facts else place


def _facts(typed: Typed, layers: tuple[Layer, ...], place: Place) -> HostFacts:
    """All of them, also those that take seconds: what is reachable, and how fast the disk reads."""
    settings = settle(layers).settings
    if typed.saved_facts is not None:
        return read_facts(settings, place, None, typed.saved_facts)
    lookout = None
    with suppress(DockerUnavailable):  # that is one of the findings
        lookout = EngineLookout(settings.project)
    facts = read_facts(settings, place, lookout, None)
    facts = with_reach(facts, settings, profile_files.read_all(place.configs))
    if facts.disk is None:
        return facts
    disk = facts.disk.model_copy(update={"read_bytes_per_s": measure_disk(place.weights)})
    return facts.model_copy(update={"disk": disk})


_NAMED = Said("as you asked", "由你指定")
_SERVES = Said("it serves, or did last", "正在使用，或上次使用过")
_BEST = Said(
    "the best for this host that this release can start", "当前版本能在这台机器上启动的最好的配置"
)
_NOT_EVEN = Said("not even this one fits here", "连它也放不下")


def _subject(layers: tuple[Layer, ...], place: Place, facts: HostFacts) -> tuple[Advice, Said]:
    """The profile that the checks are for, and why this one."""
    named = settle(layers).settings.profile
    name = named or previous_profile(place)
    if name is not None and (named or name not in profile_files.left_out(place.configs)):
        profile = profile_files.read_profile(place.configs, name)
        how = _NAMED if named else _SERVES
        return first_advice(profile, layers, place, facts), how
    ranking = ranking_of(layers, place, facts)
    if best := startable(ranking):
        return best.advice, _BEST
    return least_demanding(ranking).advice, _NOT_EVEN


def _only(findings: tuple[Finding, ...], names: Sequence[str]) -> tuple[Finding, ...]:
    refuse_unknown("--only", names, findings)
    return tuple(found for found in findings if not names or found.check in names)

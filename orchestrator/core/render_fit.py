"""Placement, budget and ranking: as text for the eye, as records for programs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from textwrap import wrap
from typing import Any

from orchestrator.core.advice import Advice
from orchestrator.core.budget import Budget, Share
from orchestrator.core.engines import ABILITIES
from orchestrator.core.kt_legacy.footprint import Footprint, pattern
from orchestrator.core.placement import Placement
from orchestrator.core.profile import Engine
from orchestrator.core.recommend import (
    BYTES_PER_CORE_S,
    OUT_OF_REACH,
    TO_REACH_IT,
    UNREACHABLE,
    Ranked,
    is_tried,
    startable,
)

WIDTH = 80
NO_CHOICE = {"nodes": "all", "cpuset": "all", "gpus": "none"}


def advice_as_text(advice: Advice) -> str:
    """Where the engine runs and what that takes, every term with its formula."""
    return "".join(
        f"{line}\n"
        for line in (
            *_placement_lines(advice.placement),
            *_unused_lines(advice),
            *_rules_lines(advice),
            "",
            *_budget_lines(advice.budget),
        )
    )


def advice_as_record(advice: Advice) -> dict[str, Any]:
    placement = asdict(advice.placement)
    return {
        "placement": placement | {"policy": advice.placement.policy.value},
        "rules": None
        if advice.form is None
        else {
            "name": advice.form.name,
            "summary": advice.form.summary,
            "rules": [_rule_record(found) for found in advice.rules],
        },
        "weights": None
        if advice.inventory is None
        else {
            "origin": advice.inventory.origin,
            "by_class": {
                kind.value: advice.inventory.bytes_of(kind)
                for kind in sorted({weight.kind for weight in advice.inventory.weights})
            },
        },
        "budget": [_share_record(share) for share in advice.budget.shares],
    }


def ranking_as_text(ranking: Sequence[Ranked], best: Ranked | None) -> str:
    """The recommended profile first, then what stands in the way of the others: of larger ones all of it."""
    return "".join(f"{line}\n" for line in _ranking_lines(ranking, best))


def ranking_as_record(ranking: Sequence[Ranked], best: Ranked | None) -> dict[str, Any]:
    return {
        "recommended": None if best is None else best.name,
        "up_takes": now.name if (now := startable(ranking)) else None,
        "profiles": [
            {
                "name": ranked.name,
                "route": ranked.advice.profile.route.value,
                "status": ranked.advice.profile.status.value,
                "fits": ranked.fits,
                "startable": ranked.startable,
                "tokens_per_s_at_best": ranked.tokens_per_s,
                "against": list(ranked.against),
                "to_add": list(ranked.to_add),
            }
            for ranked in ranking
        ],
    }


def _placement_lines(placement: Placement) -> Iterator[str]:
    yield "Placement"
    values = asdict(placement) | {"policy": placement.policy.value}
    for name, reason in placement.reasons.items():
        value = values.get(name, "")
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
        yield from _wrapped(
            f"  {name} = {NO_CHOICE.get(name, '') if shown == '' else shown}", reason
        )
    yield "Engine"
    command = " ".join(placement.arguments)
    # Whole words: it is to be read, and pasted, as the engine is told it.
    yield from (
        f"  {line}"
        for line in wrap(command, WIDTH - 4, break_on_hyphens=False, break_long_words=False)
    )


def _unused_lines(advice: Advice) -> Iterator[str]:
    """What was set and this engine is not told: an admin would wait for its effect in vain."""
    settings, engine = advice.settled.settings, advice.profile.engine
    if settings.gpu_experts and engine is not Engine.KT_SGLANG:
        yield f"gpu_experts = {settings.gpu_experts} is not used: {engine.value} is told no number of them"


def _rules_lines(advice: Advice) -> Iterator[str]:
    """What each rule of kt-legacy's placement puts where, and what that saves elsewhere."""
    if advice.form is None:
        if unused := advice.settled.settings.placement:
            engine = advice.profile.engine.value
            yield f"No rules: {engine} has none, and placement = {unused} is not used"
        return
    yield f"Rules of {advice.form.name}, weights alone (GB = 10^9 bytes)"
    if not advice.rules:
        yield "  what each takes can't be told: the model's headers are not known"
    for number, found in enumerate(advice.rules, 1):
        rule = found.rule
        # They lie below the layers by name, and no rule of `layers` is about them.
        but = " without mlp.experts" if rule.modules == "layers" else ""
        yield f"  {number}  {pattern(rule)}{but} -> {rule.device}, {rule.kernel}"
        yield from _wrapped(f"     {_taken(found)}", rule.why)


def _taken(found: Footprint) -> str:
    takes = [f"{_amount(size)} of VRAM" for size in found.vram_bytes.values()]
    takes += [f"{_amount(found.ram_bytes)} of RAM"] if found.ram_bytes else []
    saves = [f"{_amount(found.ram_saved_bytes)} of RAM"] if found.ram_saved_bytes else []
    saves += [f"{_amount(found.vram_saved_bytes)} of VRAM"] if found.vram_saved_bytes else []
    said = f"takes {', '.join(takes) or 'nothing'}"
    return f"{said}; saves {', '.join(saves)}" if saves else said


def _rule_record(found: Footprint) -> dict[str, Any]:
    return {
        **found.rule.model_dump(),
        "pattern": pattern(found.rule),
        "ram_bytes": found.ram_bytes,
        "vram_bytes": sum(found.vram_bytes.values()),
        "ram_saved_bytes": found.ram_saved_bytes,
        "vram_saved_bytes": found.vram_saved_bytes,
    }


def _budget_lines(budget: Budget) -> Iterator[str]:
    yield "Budget (GB = 10^9 bytes)"
    for share in budget.shares:
        have = "unknown" if share.have_bytes is None else _amount(share.have_bytes)
        verdict = {True: "fits", False: "DOES NOT FIT", None: "can't tell"}[share.fits]
        yield f"  {share.where}: needs {_amount(share.need_bytes)}, has {have}: {verdict}"
        for term in share.terms:
            yield from _wrapped(
                f"    {_amount(term.size_bytes):>9}  {term.name} ({term.certainty})", term.formula
            )


def _ranking_lines(ranking: Sequence[Ranked], best: Ranked | None) -> Iterator[str]:
    if best is None:
        yield "No profile can run on this host."
    else:
        yield f"Recommended: {best.name}"
        yield from _indented([best.advice.profile.summary, best.advice.profile.quality])
        yield from _indented(_pace(best))
        yield from _indented(_trust(best))
        yield from _indented(f"but first: {reason}" for reason in best.against)
        yield from _until_then(ranking, best)
    larger = ranking if best is None else ranking[: ranking.index(best)]
    for route, group in groupby(larger, key=lambda ranked: ranked.advice.profile.route):
        yield f"\n{route.value.capitalize()}: why not"
        for ranked in group:
            yield f"  {ranked.name} ({ranked.advice.profile.status.value})"
            yield from _indented((f"- {_briefly(reason)}" for reason in ranked.against), 4)
            if ranked.to_add:
                yield from _indented([f"to add: {'; '.join(ranked.to_add)}"], 4)
    smaller = [] if best is None else ranking[ranking.index(best) + 1 :]
    yield from _smaller_lines([ranked for ranked in smaller if not ranked.fits])
    if any(UNREACHABLE in ranked.against for ranked in ranking):
        yield ""
        yield from _indented([f"Where a model is unreachable, {TO_REACH_IT}."], 0)
    also = [ranked for ranked in ranking if ranked.fits and ranked is not best]
    for said, tried in (("Fit as well", True), ("Fit as well, but are untried", False)):
        if names := [ranked.name for ranked in also if is_tried(ranked.advice.profile) == tried]:
            yield ""
            yield from _indented([f"{said}: {', '.join(names)}"], 0)


def _smaller_lines(ranking: Sequence[Ranked]) -> Iterator[str]:
    """Nobody looks for them here but who has one of them in mind: one reason each."""
    if not ranking:
        return
    yield "\nRanked after it (smaller, or an experiment): why not"
    for ranked in ranking:
        more = len(ranked.against) - 1
        and_more = f", and {more} more" if more else ""
        yield from _indented([f"{ranked.name}: {_briefly(ranked.against[0])}{and_more}"])
    yield from _indented(["All about one: python3 -m orchestrator doctor --profile NAME"])


def _briefly(reason: str) -> str:
    """What would do is said once, below all who lack it."""
    return OUT_OF_REACH if reason == UNREACHABLE else reason


def _pace(ranked: Ranked) -> Iterator[str]:
    if ranked.tokens_per_s is not None:
        yield (
            f"at best {ranked.tokens_per_s:.0f} tokens/s: every active byte is read once a token, "
            f"{BYTES_PER_CORE_S / 1e9:g} GB/s on each core"
        )


def _trust(ranked: Ranked) -> Iterator[str]:
    engine = ranked.advice.profile.engine
    if not ABILITIES[engine].seen:
        yield (
            f"not proven: {engine.value} is built and checked, and has not run on any GPU yet; "
            f"this profile is {ranked.advice.profile.status.value}"
        )


def _until_then(ranking: Sequence[Ranked], best: Ranked) -> Iterator[str]:
    """What `up` brings up where the best has no engine in this release."""
    now = startable(ranking)
    if not best.startable and now is not None:
        yield f"Until then `up` takes: {now.name}"
        yield from _indented([now.advice.profile.summary, now.advice.profile.quality])
        yield from _indented(_pace(now))


def _share_record(share: Share) -> dict[str, Any]:
    return {
        "where": share.where,
        "need_bytes": share.need_bytes,
        "have_bytes": share.have_bytes,
        "fits": share.fits,
        "terms": [asdict(term) for term in share.terms],
    }


def _wrapped(head: str, explanation: str) -> Iterator[str]:
    yield head
    yield from wrap(explanation, WIDTH, initial_indent=" " * 15, subsequent_indent=" " * 15)


def _indented(texts: Iterable[str], by: int = 2) -> Iterator[str]:
    for text in texts:
        yield from wrap(text, WIDTH, initial_indent=" " * by, subsequent_indent=" " * (by + 2))


def _amount(count: int) -> str:
    if not count:
        return "none"
    for unit, size in (("GB", 10**9), ("MB", 10**6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1000:.1f} kB"

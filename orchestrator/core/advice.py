"""One profile judged on one host: where it would run, what it would take, and what speaks against it."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.core.budget import Budget, budget_of
from orchestrator.core.checks import host_findings, profile_findings
from orchestrator.core.checks.finding import Finding, Severity
from orchestrator.core.engines import unreadable
from orchestrator.core.facts import HostFacts
from orchestrator.core.inventory import Inventory
from orchestrator.core.kt_legacy.footprint import Footprint, footprints
from orchestrator.core.kt_legacy.form import Form
from orchestrator.core.placement import Placement, Standing, place
from orchestrator.core.profile import Profile
from orchestrator.core.settings import Layer, Settled, settle


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """`inventory`: None where neither a header nor a rule says what the files hold.

    `standing`: where the profile runs already. `form`: which modules kt-legacy puts where; `rules`:
    what each of its rules takes and saves, () where that can't be told.
    """

    profile: Profile
    settled: Settled
    inventory: Inventory | None
    placement: Placement
    budget: Budget
    findings: tuple[Finding, ...]
    standing: Standing | None = None
    form: Form | None = None
    rules: tuple[Footprint, ...] = ()

    @property
    def blockers(self) -> tuple[Finding, ...]:
        return tuple(found for found in self.findings if found.severity is Severity.BLOCK)


def advise(  # noqa: PLR0913 - what an advice hangs on
    profile: Profile,
    layers: Sequence[Layer],
    facts: HostFacts,
    inventory: Inventory | None,
    missing_bytes: int,
    *,
    locked: bool = True,
    standing: Standing | None = None,
    form: Form | None = None,
) -> Advice:
    """`layers`: the operator's own. `missing_bytes`: weights that are not on this disk yet.

    `locked`: by the files' lock, and not by the sum that the profile quotes.
    """
    rules = footprints(form, inventory) if form and inventory else ()
    profile = _with_savings(profile, sum(found.ram_saved_bytes for found in rules))
    settled = settle((*layers, profile.layer()))
    settings = settled.settings
    placement = place(profile, settings, facts, inventory, standing, form)
    budget = budget_of(
        profile, settings, placement, inventory, facts, missing_bytes, locked=locked, form=form
    )
    reasons = unreadable(profile.engine, inventory) if inventory else ()
    trained = inventory.shape.trained_context_tokens if inventory else None
    return Advice(
        profile=profile,
        settled=settled,
        inventory=inventory,
        placement=placement,
        budget=budget,
        standing=standing,
        form=form,
        rules=rules,
        findings=(
            *host_findings(facts, settings),
            *profile_findings(profile, settings, facts, placement, budget, reasons, trained),
        ),
    )


def _with_savings(profile: Profile, saved_bytes: int) -> Profile:
    """What is published of RAM is meant for all experts in it: less those that a card holds."""
    if not saved_bytes:
        return profile
    figure = profile.needs.memory
    recommended = figure.recommended_bytes
    less = {
        "least_bytes": max(1, figure.least_bytes - saved_bytes),
        "recommended_bytes": None if recommended is None else max(1, recommended - saved_bytes),
        "source": f"{figure.source}, less {saved_bytes / 1e9:.1f} GB that the placement saves",
    }
    needs = profile.needs.model_copy(update={"memory": figure.model_copy(update=less)})
    return profile.model_copy(update={"needs": needs})

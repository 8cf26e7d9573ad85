"""Refusals: every reason not to start in one error, before the first byte."""

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches

from orchestrator.core.checks.check import gb
from orchestrator.core.checks.finding import Finding, Severity
from orchestrator.core.errors import BadConfiguration, UnfitHost, UnfitProfile
from orchestrator.core.facts import HostFacts
from orchestrator.core.profile import Profile
from orchestrator.core.settings import Settings

SPARE_DISK_BYTES = 1 << 30  # images, logs and the chat's data go on growing beside the weights
PORTS = "ports"


def refuse(
    findings: Sequence[Finding], *, forced: Collection[str], profile: Profile, chosen: bool
) -> tuple[Finding, ...]:
    """Raise with every blocker at once, but for those of the checks in `forced`: these are returned.

    UnfitHost where no profile can change it, or where nobody chose this one: it is the best there is.
    """
    refuse_unknown("--force", forced, findings)
    blockers = [found for found in findings if found.severity is Severity.BLOCK]
    against = [found for found in blockers if found.check not in forced]
    if against and all(found.check == PORTS for found in against):
        raise BadConfiguration(
            "a port is in use",
            why=tuple(in_words(found) for found in against),
            next_step=_next_steps(against),
        )
    if against:
        of_host = not chosen or any(found.of_host for found in against)
        kind = UnfitHost if of_host else UnfitProfile
        raise kind(
            f"{profile.name} can't run here",
            why=tuple(in_words(found) for found in against),
            next_step=_next_steps(against),
        )
    return tuple(found for found in blockers if found.check in forced)


def refuse_full_disk(
    profile: Profile, settings: Settings, facts: HostFacts, missing_bytes: int
) -> None:
    """Raise UnfitProfile where the weights do not fit; what needs no room is never refused."""
    needed = missing_bytes + SPARE_DISK_BYTES
    free = facts.disk.free_bytes if facts.disk else None
    if missing_bytes and free is not None and free < needed:
        raise UnfitProfile(
            f"the weights of {profile.name} do not fit here",
            why=f"{gb(needed)} needed ({gb(missing_bytes)} of weights), "
            f"{gb(free)} free in {settings.weights_dir}",
            next_step="free some space (python3 -m orchestrator weights list), "
            "or set ORCH_WEIGHTS_DIR to a folder on a larger disk",
        )


def in_words(finding: Finding) -> str:
    """`disk: needs 404.4 GB, found 212.0 GB on /data`."""
    return f"{finding.check}: needs {finding.needed}, found {finding.found}"


def refuse_unknown(option: str, names: Collection[str], findings: Sequence[Finding]) -> None:
    """Raise BadConfiguration for a name that no check has. `option`: where it was given."""
    known = [found.check for found in findings]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise BadConfiguration(
                f"{option}: there is no check {name!r}",
                why=f"the checks are {', '.join(known)}",
                next_step=f"did you mean {near[0]!r}?" if near else "choose one of them",
            )


def _next_steps(against: Sequence[Finding]) -> tuple[str, ...]:
    steps = dict.fromkeys(step for found in against for step in _steps(found))
    names = " ".join(f"--force {found.check}" for found in against)
    return (
        *steps,
        "all checks: python3 -m orchestrator doctor",
        f"to try it anyway: {names}",
    )


def _steps(found: Finding) -> Iterator[str]:
    if found.fix:
        yield found.fix
    if found.next_step.en:
        yield found.next_step.en

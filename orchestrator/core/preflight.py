"""Reasons not to start. Empty means go."""

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.errors import BadConfiguration, UnfitHost, UnfitProfile
from orchestrator.core.facts import HostFacts
from orchestrator.core.profile import Profile
from orchestrator.core.settings import Settings

SPARE_DISK_BYTES = 1 << 30  # images, logs and the chat's data go on growing beside the weights


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    why: str
    next_step: str


def objections(
    profile: Profile, settings: Settings, facts: HostFacts, missing_bytes: int
) -> Iterator[Finding]:
    """Why this profile can't run here. `missing_bytes`: weights not on this disk yet."""
    free = facts.memory_available_bytes
    if free is not None and free < profile.needs.memory_bytes:
        yield Finding(
            "too little memory",
            f"{profile.name} needs {_gb(profile.needs.memory_bytes)} of free RAM, "
            f"this host has {_gb(free)}",
            "stop other programs, or choose a smaller profile",
        )
    if settings.inference_memory_bytes < profile.needs.memory_bytes:
        yield Finding(
            "the engine's memory limit is too low",
            f"inference_memory_bytes is {_gb(settings.inference_memory_bytes)}, "
            f"{profile.name} needs {_gb(profile.needs.memory_bytes)}",
            "raise ORCH_INFERENCE_MEMORY_BYTES, or leave it out",
        )
    yield from disk_objections(settings, facts, missing_bytes)
    if facts.cpu_flags is not None and (lacking := profile.needs.cpu_flags - facts.cpu_flags):
        yield Finding(
            "the CPU lacks instructions",
            f"{profile.name} needs {', '.join(sorted(lacking))}",
            "choose a profile without them; in a virtual machine, pass the host's CPU through",
        )


def disk_objections(settings: Settings, facts: HostFacts, missing_bytes: int) -> Iterator[Finding]:
    """Why the weights do not fit on this disk. What needs no room is never refused."""
    needed = missing_bytes + SPARE_DISK_BYTES
    if missing_bytes and facts.disk_free_bytes is not None and facts.disk_free_bytes < needed:
        yield Finding(
            "too little disk",
            f"{_gb(needed)} needed ({_gb(missing_bytes)} of weights), "
            f"{_gb(facts.disk_free_bytes)} free in {settings.weights_dir}",
            "free some space (python3 -m orchestrator weights list), "
            "or set ORCH_WEIGHTS_DIR to a folder on a larger disk",
        )


def refuse_full_disk(
    profile: Profile, settings: Settings, facts: HostFacts, missing_bytes: int
) -> None:
    """Raise UnfitProfile where the weights do not fit: all that `pull` asks of a host."""
    for finding in disk_objections(settings, facts, missing_bytes):
        raise UnfitProfile(
            f"the weights of {profile.name} do not fit here",
            why=f"{finding.what}: {finding.why}",
            next_step=finding.next_step,
        )


def refuse_unfit(
    profile: Profile, settings: Settings, facts: HostFacts, missing_bytes: int
) -> None:
    """Raise, with every reason at once, when the profile can't run here.

    UnfitHost where nobody chose the profile: then it is the smallest there is.
    """
    _refuse_busy_ports(settings, facts)
    if found := tuple(objections(profile, settings, facts, missing_bytes)):
        kind = UnfitHost if settings.profile is None else UnfitProfile
        raise kind(
            f"{profile.name} can't run here",
            why="; ".join(f"{finding.what}: {finding.why}" for finding in found),
            next_step="; ".join(dict.fromkeys(finding.next_step for finding in found)),
        )


def _refuse_busy_ports(settings: Settings, facts: HostFacts) -> None:
    for name, port in (
        ("gateway_port", settings.gateway_port),
        ("webui_port", settings.webui_port),
    ):
        if port in facts.busy_ports:
            raise BadConfiguration(
                f"port {port} is in use",
                why=f"another program listens on 127.0.0.1:{port}, the {name}",
                next_step=f"stop it, or choose another: ORCH_{name.upper()}={port + 1}",
            )


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"

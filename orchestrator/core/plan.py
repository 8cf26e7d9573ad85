"""From choices and facts to an immutable list of steps. Nothing here happens yet."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.advice import Advice
from orchestrator.core.facts import Docker, HostFacts
from orchestrator.core.gates import Answers, Gate, Generates, Gone, Healthy, ImagePresent, Proven
from orchestrator.core.images import Build
from orchestrator.core.kt_legacy.command import as_line
from orchestrator.core.profile import Engine, Profile
from orchestrator.core.settings import Layer, Settings
from wire import Lock

COMPOSE_FILES = "COMPOSE_FILE"  # Compose's own variable: paths from the project's folder
METRICS = "metrics"  # compose.yaml's profile of what is not started by default
COMPOSE_PROFILES = "COMPOSE_PROFILES"  # Compose's own variable
AS_BEFORE = "as it was last started"
# What is compiled once, is compiled: a second reply begins at once, also on a CPU that reads five
# tokens a second. Comments of the gateway's line are no silence.
_NEXT_TOKEN_WITHIN_S = 60
ROOT_UID = 0
# Whoever installs as root gets containers that run as nobody in particular.
STACK_UID_FOR_ROOT = 10001


@dataclass(frozen=True, slots=True)
class AssembleRootfs:
    """Make the base file system from the operating system's own packages."""

    ref: str


@dataclass(frozen=True, slots=True)
class PullImage:
    ref: str


@dataclass(frozen=True, slots=True)
class BuildImage:
    build: Build


@dataclass(frozen=True, slots=True)
class RunJob:
    service: str


@dataclass(frozen=True, slots=True)
class StartService:
    service: str


@dataclass(frozen=True, slots=True)
class RemoveService:
    """Its container goes, its volumes stay."""

    service: str


Action = AssembleRootfs | PullImage | BuildImage | RunJob | StartService | RemoveService


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Wait up to `within_s` for the gate, looking every `every_s`; try the whole step `tries` times.

    An engine that says how much it has loaded is waited for as long as that grows within `within_s`.

    Before attempt n+1 the wait is `pause_s` doubled n-1 times.
    """

    within_s: float
    every_s: float = 1.0
    tries: int = 1
    pause_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Do one thing, then prove it."""

    name: str
    action: Action
    gate: Gate
    patience: Patience
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`env`: the whole effect on Compose. `steps`: in order, each proven before the next."""

    profile: str
    env: Mapping[str, str]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseSystem:
    """Where the images' base comes from: a registry's reference, or one assembled here."""

    ref: str
    from_registry: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Absolute folders of this host that containers are given, and its CA bundle if it has one."""

    locks: Path
    job: Path
    source: Path
    weights: Path
    secrets: Path
    control: Path
    usage: Path
    placement: Path
    ca_bundle: Path | None


def stack_owner(facts: HostFacts) -> tuple[int, int]:
    """The one uid:gid that containers run as, and that owns secrets, weights and data."""
    return owner_for(facts.uid, facts.gid)


def owner_for(uid: int, gid: int) -> tuple[int, int]:
    return (STACK_UID_FOR_ROOT, STACK_UID_FOR_ROOT) if uid == ROOT_UID else (uid, gid)


def make_steps(  # noqa: PLR0913, PLR0917 - all that was settled
    settings: Settings,
    profile: Profile,
    lock: Lock,
    base: BaseSystem,
    builds: Sequence[Build],
    present: Collection[str] = (),
) -> tuple[Step, ...]:
    """What `up` does, in order. `builds`: the base image first, then the service images.

    `present`: services that have a container now.
    """
    return (
        *image_steps(settings, base, builds),
        weights_step(settings, lock),
        Step(
            name="inference",
            action=StartService("inference"),
            gate=Healthy("inference"),
            patience=Patience(within_s=settings.load_timeout_s, tries=settings.tries),
            cause=f"{profile.engine.value} loads {profile.model_file}",
        ),
        Step(
            name="gateway",
            action=StartService("gateway"),
            gate=Answers("gateway", f"http://127.0.0.1:{settings.gateway_port}/readyz"),
            patience=Patience(within_s=120, tries=settings.tries),
            cause="the one door to the engine",
        ),
        _first_token_step(settings, profile),
        Step(
            name="webui",
            action=StartService("webui"),
            gate=Answers("webui", f"http://127.0.0.1:{settings.webui_port}/ready"),
            patience=Patience(within_s=300, tries=settings.tries),
            cause="the page people chat on",
        ),
        *_prometheus_steps(settings, present),
    )


def _prometheus_steps(settings: Settings, present: Collection[str]) -> tuple[Step, ...]:
    if settings.metrics:
        url = f"http://127.0.0.1:{settings.prometheus_port}/-/ready"
        start = Step(
            name="prometheus",
            action=StartService("prometheus"),
            gate=Answers("prometheus", url),
            patience=Patience(within_s=120, tries=settings.tries),
            cause="`metrics` is on",
        )
        return (start,)
    if "prometheus" not in present:
        return ()
    remove = Step(
        name="prometheus",
        action=RemoveService("prometheus"),
        gate=Gone("prometheus"),
        patience=Patience(within_s=60),
        cause="`metrics` is off: what it has collected is kept",
    )
    return (remove,)


def image_steps(settings: Settings, base: BaseSystem, builds: Sequence[Build]) -> tuple[Step, ...]:
    return _base_step(base, settings), *(_build_step(build, settings) for build in builds)


def weights_step(settings: Settings, lock: Lock) -> Step:
    return Step(
        name="weights",
        action=RunJob("weights"),
        gate=Proven("weights"),
        # The job has a patience of its own; this is for one that runs and gets nowhere at all.
        patience=Patience(within_s=30 * 24 * 3600, tries=settings.tries, pause_s=5),
        cause=f"{lock.repo}@{lock.revision[:12]}: {lock.count}, {lock.total_bytes / 1e9:.2f} GB",
    )


def _base_step(base: BaseSystem, settings: Settings) -> Step:
    action = PullImage(base.ref) if base.from_registry else AssembleRootfs(base.ref)
    cause = "an image registry answers" if base.from_registry else "no image registry answers"
    return Step(
        name="base system",
        action=action,
        gate=ImagePresent(base.ref),
        patience=Patience(within_s=10, tries=settings.tries),
        cause=cause,
    )


def _build_step(build: Build, settings: Settings) -> Step:
    return Step(
        name=f"image {build.recipe.name}",
        action=BuildImage(build),
        gate=ImagePresent(build.ref),
        patience=Patience(within_s=10, tries=settings.tries),
        cause=f"{build.ref} is not built yet"
        + (f": {build.recipe.takes}" if build.recipe.takes else ""),
    )


def _first_token_step(settings: Settings, profile: Profile) -> Step:
    return Step(
        name="first token",
        # Already running; only after a crash does an attempt really start it again.
        action=StartService("inference"),
        gate=Generates(
            service="inference",
            url=f"http://127.0.0.1:{settings.gateway_port}/v1/chat/completions",
            model=settings.model_name,
            prompt=profile.acceptance.prompt,
            expected=profile.acceptance.contains,
            max_tokens=profile.acceptance.max_tokens,
            times=2,
            first_within_s=settings.first_token_timeout_s,
            next_within_s=min(settings.first_token_timeout_s, _NEXT_TOKEN_WITHIN_S),
        ),
        patience=Patience(
            within_s=settings.load_timeout_s + settings.first_token_timeout_s, tries=settings.tries
        ),
        cause="a running container proves nothing, a reply does",
    )


def stack_env(
    advice: Advice,
    facts: HostFacts,
    folders: Folders,
    image_refs: Mapping[str, str],
    rules: str = "",
) -> Mapping[str, str]:
    """Every variable of compose.yaml, and of the files beside it that this engine needs.

    `image_refs`: service -> image reference. `rules`: of kt-legacy, as they are rendered.
    """
    uid, gid = stack_owner(facts)
    profile, settings, placement = advice.profile, advice.settled.settings, advice.placement
    values: dict[str, object] = {
        "UID": uid,
        "GID": gid,
        "PROFILE": profile.name,
        **{f"{service.upper()}_IMAGE": ref for service, ref in image_refs.items()},
        "LOCKS_DIR": folders.locks,
        "JOB_DIR": folders.job,
        "CA_BUNDLE": folders.ca_bundle or "",
        "SOURCE_DIR": folders.source,
        "WEIGHTS_DIR": folders.weights,
        "SECRETS_DIR": folders.secrets,
        "CONTROL_DIR": folders.control,
        "USAGE_DIR": folders.usage,
        "LOCK_NAME": profile.lock_name,
        "MODEL_FILE": profile.model_file,
        "MODEL_NAME": settings.model_name,
        "SYSTEM_MESSAGE": settings.system_message,
        "CONTEXT_TOKENS": placement.context_tokens,
        "SLOTS": placement.slots,
        "MAX_TOKENS": placement.max_tokens,
        "THREADS": placement.threads,
        "MEMORY_POLICY": placement.policy.value,
        "MEMORY_NODES": ",".join(map(str, placement.nodes)),
        "INFERENCE_CPUSET": placement.cpuset,
        "INFERENCE_MEMORY_BYTES": placement.memory_limit_bytes,
        "INFERENCE_SHM_BYTES": placement.shm_bytes,
        "LOAD_TIMEOUT_S": settings.load_timeout_s,
        "GATEWAY_PORT": settings.gateway_port,
        "WEBUI_PORT": settings.webui_port,
        "PROMETHEUS_PORT": settings.prometheus_port,
        "ADMIN_EMAIL": settings.admin_email,
    }
    overrides = []
    if profile.engine is not Engine.LLAMACPP:
        overrides.append(profile.engine.value)
        values["ENGINE_COMMAND"] = as_line(placement.arguments)
    if profile.engine is Engine.KT_LEGACY:
        values |= {
            "PLACEMENT_DIR": folders.placement,
            "RULES_DIGEST": hashlib.sha256(rules.encode()).hexdigest()[:12],
        }
    if placement.gpus:
        overrides.append("nvidia")
        values |= _cards(placement.gpus, facts.docker)
    # The prefix: a variable of the same name in somebody's shell would win over the env file.
    stack = {f"STACK_{name}": str(value) for name, value in values.items()}
    own = {"COMPOSE_PROJECT_NAME": settings.project}
    if settings.metrics:
        own[COMPOSE_PROFILES] = METRICS
    if overrides:
        files = ("compose.yaml", *(f"configs/compose/{name}.yaml" for name in overrides))
        own[COMPOSE_FILES] = ":".join(files)
    return own | stack


def standing_metrics(started_with: Mapping[str, str]) -> Layer:
    """Prometheus stays on, and where it is, until somebody says otherwise: as the profile does.

    `started_with`: what `stack_env` wrote last.
    """
    if started_with.get(COMPOSE_PROFILES) != METRICS:
        return Layer(values={}, origins={})
    values = {"metrics": True, "prometheus_port": started_with.get("STACK_PROMETHEUS_PORT")}
    given = {name: value for name, value in values.items() if value is not None}
    return Layer(values=given, origins=dict.fromkeys(given, AS_BEFORE))


def _cards(gpus: Sequence[int], docker: Docker) -> Mapping[str, str]:
    """How Docker is to give these cards, and which of those that it then sees the engine uses.

    NVIDIA's runtime takes several in one word. A word of CDI is one card, or all of them.
    """
    if docker.nvidia_runtime or not docker.cdi:
        given = ",".join(map(str, gpus))
        return {"GPU_DRIVER": "nvidia", "GPU_DEVICES": given, "CUDA_DEVICES": _anew(gpus)}
    if len(gpus) == 1:
        one = f"nvidia.com/gpu={gpus[0]}"
        return {"GPU_DRIVER": "cdi", "GPU_DEVICES": one, "CUDA_DEVICES": _anew(gpus)}
    chosen = ",".join(map(str, gpus))
    return {"GPU_DRIVER": "cdi", "GPU_DEVICES": "nvidia.com/gpu=all", "CUDA_DEVICES": chosen}


def _anew(gpus: Sequence[int]) -> str:
    """In a container cards are numbered anew, from 0, whatever their order in the list was."""
    return ",".join(str(sorted(gpus).index(index)) for index in gpus)

"""Everything that is settled before the first step: choices, facts, profile, plan."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from orchestrator.adapters import files, index
from orchestrator.adapters.clock import SystemClock, today
from orchestrator.adapters.environment import read_layers, read_proxies
from orchestrator.adapters.host import ca_bundle, read_host
from orchestrator.adapters.hub import Hubs
from orchestrator.adapters.images import sources_digest
from orchestrator.adapters.lookout import EngineLookout
from orchestrator.adapters.secret_files import HF_TOKEN, read_given
from orchestrator.core.errors import AlreadyRunning, BadConfiguration
from orchestrator.core.facts import HostFacts
from orchestrator.core.images import BASE, RECIPES, ROOTFS_REF, Build, Recipe, a_build
from orchestrator.core.plan import (
    BaseSystem,
    Folders,
    Plan,
    Step,
    image_steps,
    make_steps,
    stack_env,
    stack_owner,
    weights_step,
)
from orchestrator.core.preflight import refuse_full_disk, refuse_unfit
from orchestrator.core.profile import (
    SMALL,
    Pick,
    Profile,
    WheelSource,
    pick_profile,
    wants_index,
)
from orchestrator.core.render import from_env_file
from orchestrator.core.settings import Layer, Settings, Settled, fits_an_env_file, settle
from orchestrator.supply import (
    Outside,
    Supply,
    locked_supply,
    loopback_proxies,
    make_order,
    proven_supply,
    renewed_supply,
    source_folder,
)
from wire import Lock, discrepancies, read_receipt, stat_files
from wire.on_disk import missing_bytes
from wire.order import Folder, Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where things are on this host, all absolute."""

    root: Path
    state: Path
    secrets: Path
    weights: Path
    configs: Path

    @property
    def env_file(self) -> Path:
        return self.state / "stack.env"

    @property
    def pull_env_file(self) -> Path:
        """For `pull`, which must not change what a running stack was started with."""
        return self.state / "pull.env"

    @property
    def job(self) -> Path:
        return self.state / "job"

    def order_file(self, profile: str) -> Path:
        """One a profile: fetching another must not change what the serving stack's job does."""
        return self.job / f"{profile}.json"

    @property
    def no_source(self) -> Path:
        """An empty folder, for the weights job when it needs none."""
        return self.state / "no-source"

    @property
    def images(self) -> Path:
        return self.root / "images"


class Need(Enum):
    """What the weights job is wanted for: it decides what has to be asked of the sources."""

    FETCH = "fetch what is missing"
    RENEW = "make a new lock of what is published today, and fetch that"
    CHECK = "read what is here"
    REPAIR = "read what is here, and fetch what is wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """`earlier`: the lock on disk, None before the first pull. `order`: None where the job's stays."""

    settled: Settled
    pick: Pick
    profile: Profile
    earlier: Lock | None
    supply: Supply
    order: Order | None
    owner: tuple[int, int]
    plan: Plan
    env_file: Path

    @property
    def lock(self) -> Lock:
        return self.supply.lock


def settings_without_profile(
    root: Path, flags: Mapping[str, object]
) -> tuple[tuple[Layer, ...], Settings, Place]:
    """The operator's own layers, what they settle, and the folders they mean."""
    if not fits_an_env_file(str(root)):
        raise BadConfiguration(
            "the project's folder has a name that Compose can't be told",
            why=f"{root} has a quote or a backslash in it",
            next_step="move the project's folder",
        )
    layers = read_layers(root, flags)
    settings = settle(layers).settings
    place = Place(
        root=root,
        state=root / settings.state_dir,
        secrets=root / settings.secrets_dir,
        weights=root / settings.weights_dir,
        configs=root / settings.configs_dir,
    )
    return layers, settings, place


def prepare(layers: tuple[Layer, ...], place: Place, lookout: EngineLookout) -> Prepared:
    """Choose, prove the fit, plan. Raises what stands in the way; changes nothing."""
    chosen = _choose(layers, place, lookout)
    weights = _weights(chosen, place, lookout, Need.FETCH)
    profile, settings = chosen.profile, chosen.settled.settings
    refuse_unfit(
        profile,
        settings,
        chosen.facts,
        _missing_bytes(place, weights.supply.lock, at_work=weights.at_work),
    )
    base = _base_system(settings, lookout)
    builds = _builds(place, base, profile, settings, stack_owner(chosen.facts))
    steps = make_steps(settings, profile, weights.supply.lock, base, builds)
    return _prepared(chosen, weights, place, builds, steps)


def prepare_pull(
    layers: tuple[Layer, ...], place: Place, lookout: EngineLookout, need: Need
) -> Prepared:
    """Choose and plan for the weights alone."""
    chosen = _choose(layers, place, lookout)
    weights = _weights(chosen, place, lookout, need)
    profile, settings = chosen.profile, chosen.settled.settings
    lock = weights.supply.lock
    refuse_full_disk(
        profile, settings, chosen.facts, _missing_bytes(place, lock, at_work=weights.at_work)
    )
    base = _base_system(settings, lookout)
    builds = _builds(place, base, profile, settings, stack_owner(chosen.facts))
    needed = [build for build in builds if build.recipe.name in {BASE.name, "weights"}]
    steps = (*image_steps(settings, base, needed), weights_step(settings, lock))
    prepared = _prepared(chosen, weights, place, builds, steps)
    return replace(prepared, env_file=place.pull_env_file)


def chosen_profile(layers: tuple[Layer, ...], place: Place) -> Profile:
    """The profile that commands without a plan are about: nothing is asked of network or Docker."""
    settings = settle(layers).settings
    name = settings.profile or _previous_profile(place)
    if name is None:
        raise BadConfiguration(
            "which profile?",
            why="none was named, and none has served yet",
            next_step="--profile NAME, one of " + ", ".join(files.known_profiles(place.configs)),
        )
    return files.read_profile(place.configs, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    settled: Settled
    pick: Pick
    profile: Profile
    facts: HostFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weights:
    earlier: Lock | None
    supply: Supply
    order: Order | None
    at_work: bool = False


def _choose(layers: tuple[Layer, ...], place: Place, lookout: EngineLookout) -> _Chosen:
    settings = settle(layers).settings
    ports = {settings.gateway_port, settings.webui_port} - lookout.ours_listen_on()
    facts = read_host(place.weights, ports)
    if facts.memory_available_bytes is not None:  # what our own engine holds is there for the next
        free = facts.memory_available_bytes + lookout.memory_held("inference")
        facts = replace(facts, memory_available_bytes=free)
    known = files.known_profiles(place.configs)
    previous = _previous_profile(place)
    if SMALL in known and wants_index(settings.profile, previous, facts):
        small = files.read_profile(place.configs, SMALL)
        packages = [s.package for s in small.sources if isinstance(s, WheelSource)]
        facts = replace(facts, index_answers=all(map(index.answers, packages)))
    pick = pick_profile(settings.profile, previous, known, facts)
    profile = files.read_profile(place.configs, pick.name)
    settled = settle((*layers, profile.layer()))
    return _Chosen(settled=settled, pick=pick, profile=profile, facts=facts)


def _weights(chosen: _Chosen, place: Place, lookout: EngineLookout, need: Need) -> _Weights:
    """The lock and the sources: of the job that is at work, else asked of the sources."""
    earlier = files.find_lock(place.configs, chosen.profile)
    if at_work := running_order(place, lookout):
        _, last = at_work
        if need is not Need.FETCH or earlier is None or not last.lock.pins_the_same(earlier):
            raise _other_job(last.lock)
        supply = Supply(lock=earlier, sources=last.sources)
        return _Weights(earlier=earlier, supply=supply, order=None, at_work=True)
    with closing(_hubs(place)) as hubs:
        return _asked_weights(chosen, place, hubs, need)


def running_order(place: Place, lookout: EngineLookout) -> tuple[str, Order] | None:
    """The profile and the order of the weights job that is at work; None where none is."""
    seen, _, profile = lookout.services().get("weights", (None, "", ""))
    if seen is None or seen.status != "running":
        return None
    order = files.read_order(place.order_file(profile))
    return (profile, order) if order else None


def _asked_weights(chosen: _Chosen, place: Place, hubs: Hubs, need: Need) -> _Weights:
    """The lock and the sources, where no job is at work: asked only as far as it is needed."""
    profile, settings = chosen.profile, chosen.settled.settings
    earlier = files.find_lock(place.configs, profile)
    last = files.read_order(place.order_file(profile.name))
    proxies = read_proxies()
    outside = Outside(
        root=place.root,
        hubs=hubs,
        locate_wheel=index.locate,
        is_folder=files.is_folder,
        clock=SystemClock(),
        today=today,
    )
    if earlier is None or need is Need.RENEW:
        supply = renewed_supply(profile, settings, outside)
    elif need is Need.CHECK or (need is Need.FETCH and _is_proven(place, earlier)):
        supply = proven_supply(earlier, profile, settings, outside)
        if last is not None and last.lock.pins_the_same(earlier):
            return _Weights(earlier=earlier, supply=supply, order=None)
    else:
        supply = locked_supply(earlier, profile, settings, outside)
    if earlier is not None and earlier.pins_the_same(supply.lock):
        supply = replace(supply, lock=earlier)
    if any(not isinstance(source, Folder) for source in supply.sources):
        supply = replace(supply, notes=(*supply.notes, *loopback_proxies(proxies)))
    order = make_order(supply, settings, proxies)
    return _Weights(earlier=earlier, supply=supply, order=order)


def _other_job(lock: Lock) -> AlreadyRunning:
    return AlreadyRunning(
        "the weights job is at work on something else",
        why=f"it fetches {lock.repo}@{lock.revision[:12]}",
        next_step="wait for it (python3 -m orchestrator status), or stop it: "
        "python3 -m orchestrator pull --stop",
    )


def _hubs(place: Place) -> Hubs:
    token = read_given(place.secrets, HF_TOKEN)
    return Hubs(ca_bundle=ca_bundle(), token=token, token_file=place.secrets / HF_TOKEN)


def _prepared(
    chosen: _Chosen,
    weights: _Weights,
    place: Place,
    builds: tuple[Build, ...],
    steps: tuple[Step, ...],
) -> Prepared:
    profile, settings = chosen.profile, chosen.settled.settings
    source = source_folder(profile, settings, place.root)
    folders = Folders(
        locks=place.configs / "locks",
        job=place.job,
        source=source if source is not None and files.is_folder(source) else place.no_source,
        weights=place.weights,
        secrets=place.secrets,
        ca_bundle=ca_bundle(),
    )
    env = stack_env(settings, profile, chosen.facts, folders, _image_refs(profile, builds))
    return Prepared(
        settled=chosen.settled,
        pick=chosen.pick,
        profile=profile,
        earlier=weights.earlier,
        supply=weights.supply,
        order=weights.order,
        owner=stack_owner(chosen.facts),
        plan=Plan(profile=profile.name, env=env, steps=steps),
        env_file=place.env_file,
    )


def _previous_profile(place: Place) -> str | None:
    previous = from_env_file(files.read_env_file(place.env_file)).get("STACK_PROFILE")
    return previous if previous in files.known_profiles(place.configs) else None


def _is_proven(place: Place, lock: Lock) -> bool:
    folder = place.weights / lock.folder
    return not any(discrepancies(lock, read_receipt(folder), stat_files(folder, lock)))


def _missing_bytes(place: Place, lock: Lock, *, at_work: bool) -> int:
    """Bytes still to be written. A job at work minds the space itself, and it changes meanwhile."""
    return 0 if at_work else missing_bytes(place.weights / lock.folder, lock)


def _base_system(settings: Settings, lookout: EngineLookout) -> BaseSystem:
    """The base that is here already; else a registry's, where one answers; else our own.

    What is here comes first: a registry that answers now and then must not change every image.
    """
    digest = f"@{settings.base_digest}" if settings.base_digest else ""
    ref = f"{settings.base_image}{digest}"
    from_registry = BaseSystem(ref=ref, from_registry=True)
    if lookout.has_image(ref):
        return from_registry
    assembled = BaseSystem(ref=ROOTFS_REF, from_registry=False)
    if lookout.has_image(ROOTFS_REF):
        return assembled
    return from_registry if lookout.registry_holds(ref) else assembled


def _builds(
    place: Place, base: BaseSystem, profile: Profile, settings: Settings, owner: tuple[int, int]
) -> tuple[Build, ...]:
    mirror = {"DEBIAN_MIRROR": settings.debian_mirror} if settings.debian_mirror else {}
    base_build = a_build(BASE, sources_digest(place.images, BASE), {"ROOTFS": base.ref, **mirror})
    ownership = {"STACK_UID": str(owner[0]), "STACK_GID": str(owner[1])}

    def service_build(recipe: Recipe) -> Build:
        arguments = {"BASE": base_build.ref} | (ownership if recipe.owned else {})
        return a_build(recipe, sources_digest(place.images, recipe), arguments)

    recipes = map(RECIPES.__getitem__, _recipe_of_service(profile).values())
    return (base_build, *map(service_build, recipes))


def _recipe_of_service(profile: Profile) -> dict[str, str]:
    return {
        "weights": "weights",
        "inference": f"inference-{profile.engine.value}",
        "gateway": "gateway",
        "webui": "webui",
    }


def _image_refs(profile: Profile, builds: tuple[Build, ...]) -> Mapping[str, str]:
    refs = {build.recipe.name: build.ref for build in builds}
    return {service: refs[recipe] for service, recipe in _recipe_of_service(profile).items()}

"""Everything that is settled before the first step: weights, sources, images, plan."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from orchestrator.adapters import files, index
from orchestrator.adapters.clock import SystemClock, today
from orchestrator.adapters.environment import read_proxies
from orchestrator.adapters.host import ca_bundle
from orchestrator.adapters.hub import Hubs
from orchestrator.adapters.images import sources_digest
from orchestrator.adapters.lookout import EngineLookout
from orchestrator.adapters.secret_files import HF_TOKEN, read_given
from orchestrator.choosing import (
    Considered,
    refuse_misplaced,
    refuse_unfit,
    still_missing,
    with_headers,
)
from orchestrator.core.checks.finding import Finding
from orchestrator.core.errors import AlreadyRunning, BadConfiguration
from orchestrator.core.images import (
    BASE,
    RECIPES,
    ROOTFS_REF,
    Build,
    Images,
    Recipe,
    a_build,
    architectures,
)
from orchestrator.core.inventory import Inventory
from orchestrator.core.kt_legacy.rules import render
from orchestrator.core.kt_legacy.tree import tree_of
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
from orchestrator.core.preflight import refuse_full_disk
from orchestrator.core.profile import Profile
from orchestrator.core.settings import Settings
from orchestrator.headers import read_inventory
from orchestrator.place import Place
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
from wire.order import Folder, Order


class Need(Enum):
    """What the weights job is wanted for: it decides what has to be asked of the sources."""

    FETCH = "fetch what is missing"
    RENEW = "make a new lock of what is published today, and fetch that"
    CHECK = "read what is here"
    REPAIR = "read what is here, and fetch what is wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """`earlier`: the lock on disk, None before the first pull. `order`: None where the job's stays.

    `forced`: names of the checks that would have refused, had the operator not said otherwise.
    `rules`: of kt-legacy, where the parts of the model live; "" for other engines.
    """

    considered: Considered
    earlier: Lock | None
    supply: Supply
    order: Order | None
    owner: tuple[int, int]
    plan: Plan
    env_file: Path
    forced: tuple[str, ...] = ()
    rules: str = ""

    @property
    def lock(self) -> Lock:
        return self.supply.lock

    @property
    def profile(self) -> Profile:
        return self.considered.profile

    @property
    def settings(self) -> Settings:
        return self.considered.settings


def prepare(
    considered: Considered,
    place: Place,
    lookout: EngineLookout,
    forced: Collection[str] = (),
) -> Prepared:
    """Prove the fit, plan. Raises what stands in the way; changes nothing but what it remembers."""
    refuse_misplaced(considered)
    # Once by the published figures, before anybody is asked, and once by the files' own headers.
    refuse_unfit(considered, forced)
    weights = _weights(considered, place, lookout, Need.FETCH)
    lock, profile = weights.supply.lock, considered.profile
    inventory = _inventory(considered, weights.supply, place)
    missing = 0 if weights.at_work else still_missing(profile, lock, place)
    considered = with_headers(considered, inventory, missing)
    overridden = refuse_unfit(considered, forced)
    base, owner = _base_system(considered.settings, lookout), stack_owner(considered.facts)
    builds = _builds(place, base, _images_of(considered), considered.settings, owner)
    present = lookout.services()
    steps = make_steps(considered.settings, profile, lock, base, builds, present)
    rules = rules_of(considered)
    prepared = _prepared(considered, weights, place, builds, steps, rules)
    return replace(prepared, forced=tuple(found.check for found in overridden))


def rules_of(considered: Considered) -> str:
    """The placement, laid over the model and rendered for the engine that reads it."""
    form, inventory = considered.advice.form, considered.advice.inventory
    if form is None:
        return ""
    if inventory is None:
        raise BadConfiguration(
            "the model can't be placed",
            why="neither its files nor its sources say which layers it has",
            next_step=f"python3 -m orchestrator pull --profile {considered.profile.name}, then up",
        )
    refuse_misplaced(considered, gpus=len(considered.advice.placement.gpus))
    return render(form, tree_of(inventory.shape))


def prepare_pull(
    considered: Considered,
    place: Place,
    lookout: EngineLookout,
    need: Need,
    forced: Collection[str] = (),
) -> Prepared:
    """Plan for the weights alone. Nobody is to fetch for hours what can't run here afterwards."""
    fetches = need in {Need.FETCH, Need.RENEW}
    if fetches:
        refuse_misplaced(considered)
        refuse_unfit(considered, forced, pulling=True)
    weights = _weights(considered, place, lookout, need)
    settings, lock = considered.settings, weights.supply.lock
    # A job at work minds the space itself, and it changes meanwhile.
    missing = 0 if weights.at_work else still_missing(considered.profile, lock, place)
    overridden: tuple[Finding, ...] = ()
    if fetches:
        considered = with_headers(
            considered, _inventory(considered, weights.supply, place), missing
        )
        overridden = refuse_unfit(considered, forced, pulling=True)
    if "disk" not in forced:
        refuse_full_disk(considered.profile, settings, considered.facts, missing)
    base, owner = _base_system(settings, lookout), stack_owner(considered.facts)
    builds = _builds(place, base, _images_of(considered), considered.settings, owner)
    needed = [build for build in builds if build.recipe.name in {BASE.name, "weights"}]
    steps = (*image_steps(settings, base, needed), weights_step(settings, lock))
    prepared = _prepared(considered, weights, place, builds, steps)
    return replace(
        prepared,
        env_file=place.pull_env_file,
        forced=tuple(found.check for found in overridden),
    )


def engine_image_steps(
    engine: str, cards: str, settings: Settings, place: Place, lookout: EngineLookout
) -> tuple[Step, ...]:
    """For the base and the engine alone, whatever this host is. Engines' images belong to nobody.

    `cards`: of llamacpp, the architectures of the GPUs that its image is to be for; "" for the CPU.
    """
    base, images = _base_system(settings, lookout), Images(engine, cards)
    builds = _builds(place, base, images, settings, (0, 0))
    names = {BASE.name, images.of_service()["inference"]}
    return image_steps(settings, base, [build for build in builds if build.recipe.name in names])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weights:
    earlier: Lock | None
    supply: Supply
    order: Order | None
    at_work: bool = False


def _inventory(considered: Considered, supply: Supply, place: Place) -> Inventory | None:
    """What the files' headers say: of those on this disk, else of those at the sources."""
    folders = [place.weights / supply.lock.folder]
    given = source_folder(considered.profile, considered.settings, place.root)
    if given is not None:
        folders.append(given)
    with closing(_hubs(place)) as hubs:
        return read_inventory(supply.lock, supply.sources, folders, hubs, place.headers)


def _weights(considered: Considered, place: Place, lookout: EngineLookout, need: Need) -> _Weights:
    """The lock and the sources: of the job that is at work, else asked of the sources."""
    earlier = files.find_lock(place.configs, considered.profile)
    if at_work := running_order(place, lookout):
        _, last = at_work
        if need is not Need.FETCH or earlier is None or not last.lock.pins_the_same(earlier):
            raise _other_job(last.lock)
        supply = Supply(lock=earlier, sources=last.sources)
        return _Weights(earlier=earlier, supply=supply, order=None, at_work=True)
    with closing(_hubs(place)) as hubs:
        return _asked_weights(considered, place, hubs, need)


def running_order(place: Place, lookout: EngineLookout) -> tuple[str, Order] | None:
    """The profile and the order of the weights job at work; None where none is."""
    seen, _, profile = lookout.services().get("weights", (None, "", ""))
    if seen is None or seen.status != "running":
        return None
    order = files.read_order(place.order_file(profile))
    return (profile, order) if order else None


def _asked_weights(considered: Considered, place: Place, hubs: Hubs, need: Need) -> _Weights:
    """The lock and the sources, where no job is at work: asked only as far as it is needed."""
    profile, settings = considered.profile, considered.settings
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


def _prepared(  # noqa: PLR0913, PLR0917 - all that was settled
    considered: Considered,
    weights: _Weights,
    place: Place,
    builds: tuple[Build, ...],
    steps: tuple[Step, ...],
    rules: str = "",
) -> Prepared:
    profile, settings = considered.profile, considered.settings
    source = source_folder(profile, settings, place.root)
    folders = Folders(
        locks=place.configs / "locks",
        job=place.job,
        source=source if source is not None and files.is_folder(source) else place.no_source,
        weights=place.weights,
        secrets=place.secrets,
        control=place.control,
        usage=place.usage,
        placement=place.placement,
        ca_bundle=ca_bundle(),
    )
    refs = _image_refs(_images_of(considered), builds)
    env = stack_env(considered.advice, considered.facts, folders, refs, rules)
    return Prepared(
        considered=considered,
        earlier=weights.earlier,
        supply=weights.supply,
        order=weights.order,
        owner=stack_owner(considered.facts),
        plan=Plan(profile=profile.name, env=env, steps=steps),
        env_file=place.env_file,
        rules=rules,
    )


def _is_proven(place: Place, lock: Lock) -> bool:
    folder = place.weights / lock.folder
    return not any(discrepancies(lock, read_receipt(folder), stat_files(folder, lock)))


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


def _images_of(considered: Considered) -> Images:
    used, engine = considered.advice.placement.gpus, considered.profile.engine.value
    if not used:
        return Images(engine, "")
    known = {gpu.index: gpu.compute_capability for gpu in considered.facts.gpus or ()}
    capabilities = [found for index in used if (found := known.get(index)) is not None]
    if not capabilities and considered.profile.may_use_gpu:
        raise BadConfiguration(
            f"the engine can't be compiled for the cards {', '.join(map(str, used))}",
            why="nvidia-smi does not say which compute capability they have",
            next_step="unset ORCH_GPUS, and the model runs on the CPU; or: nvidia-smi "
            "--query-gpu=index,compute_cap --format=csv",
        )
    return Images(engine, architectures(capabilities))


def _builds(
    place: Place, base: BaseSystem, images: Images, settings: Settings, owner: tuple[int, int]
) -> tuple[Build, ...]:
    """The images of what the profile needs, the base image first."""
    recipes = images.of_service()
    if not settings.metrics:
        del recipes["prometheus"]
    return _builds_of(recipes.values(), images.cards, place, base, settings, owner)


def every_build(
    settings: Settings, place: Place, lookout: EngineLookout, owner: tuple[int, int]
) -> tuple[Build, ...]:
    """The images of this version, the base image first, but those that are compiled for cards."""
    names = (name for name, recipe in RECIPES.items() if not recipe.for_cards)
    return _builds_of(names, "", place, _base_system(settings, lookout), settings, owner)


def _builds_of(  # noqa: PLR0913, PLR0917 - all that a name depends on
    names: Iterable[str],
    cards: str,
    place: Place,
    base: BaseSystem,
    settings: Settings,
    owner: tuple[int, int],
) -> tuple[Build, ...]:
    mirror = settings.debian_mirror
    base_arguments = {"ROOTFS": base.ref} | ({"DEBIAN_MIRROR": mirror} if mirror else {})
    base_build = a_build(BASE, sources_digest(place.images, BASE), base_arguments)
    ownership = {"STACK_UID": str(owner[0]), "STACK_GID": str(owner[1])}

    def service_build(recipe: Recipe) -> Build:
        arguments = {"BASE": base_build.ref, **recipe.build_args}
        arguments |= ownership if recipe.owned else {}
        arguments |= {"CUDA_ARCHITECTURES": cards} if recipe.for_cards else {}
        return a_build(recipe, sources_digest(place.images, recipe), arguments)

    return (base_build, *(service_build(RECIPES[name]) for name in names))


def _image_refs(images: Images, builds: tuple[Build, ...]) -> Mapping[str, str]:
    refs = {build.recipe.name: build.ref for build in builds}
    return {
        # Compose wants a name for every service, also where only the weights are fetched.
        service: refs.get(recipe, f"appliance/{recipe}:none")
        for service, recipe in images.of_service().items()
    }

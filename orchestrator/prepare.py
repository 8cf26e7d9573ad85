"""Everything that is settled before the first step: choices, facts, profile, plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters import files
from orchestrator.adapters.environment import read_layers
from orchestrator.adapters.host import read_host
from orchestrator.adapters.images import sources_digest
from orchestrator.adapters.lookout import EngineLookout
from orchestrator.core.errors import FetchFailed
from orchestrator.core.images import BASE, RECIPES, ROOTFS_REF, Build, Recipe, a_build
from orchestrator.core.plan import BaseSystem, Folders, Plan, make_steps, stack_env, stack_owner
from orchestrator.core.preflight import refuse_unfit
from orchestrator.core.profile import Pick, Profile, pick_profile
from orchestrator.core.render import from_env_file
from orchestrator.core.settings import Layer, Settings, Settled, settle
from wire import Lock, discrepancies, read_receipt, stat_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where things are on this host, all absolute."""

    root: Path
    state: Path
    secrets: Path
    weights: Path

    @property
    def env_file(self) -> Path:
        return self.state / "stack.env"

    @property
    def no_source(self) -> Path:
        """An empty folder, for the weights job when it needs none."""
        return self.state / "no-source"

    @property
    def configs(self) -> Path:
        return self.root / "configs"

    @property
    def images(self) -> Path:
        return self.root / "images"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    settled: Settled
    pick: Pick
    lock: Lock
    owner: tuple[int, int]
    plan: Plan


def settings_without_profile(
    root: Path, flags: Mapping[str, object]
) -> tuple[tuple[Layer, ...], Settings, Place]:
    """The operator's own layers, what they settle, and the folders they mean."""
    layers = read_layers(root, flags)
    settings = settle(layers).settings
    place = Place(
        root=root,
        state=root / settings.state_dir,
        secrets=root / settings.secrets_dir,
        weights=root / settings.weights_dir,
    )
    return layers, settings, place


def prepare(layers: tuple[Layer, ...], place: Place, lookout: EngineLookout) -> Prepared:
    """Choose, prove the fit, plan. Raises what stands in the way; changes nothing."""
    chosen = settle(layers).settings
    ports = {chosen.gateway_port, chosen.webui_port} - lookout.ours_listen_on()
    facts = read_host(place.weights, ports)
    pick = pick_profile(
        chosen.profile, _previous_profile(place), files.known_profiles(place.configs), facts
    )
    profile = files.read_profile(place.configs, pick.name)
    lock = files.read_lock(place.configs, profile)
    settled = settle((*layers, profile.layer()))
    refuse_unfit(profile, settled.settings, facts, _missing_bytes(place, lock))
    source = _source(settled.settings, profile, place, lock)
    base = _base_system(settled.settings, lookout)
    builds = _builds(place, base, profile, settled.settings, stack_owner(facts))
    plan = Plan(
        profile=profile.name,
        env=stack_env(
            settled.settings, profile, facts, _folders(place, source), _image_refs(profile, builds)
        ),
        steps=make_steps(settled.settings, profile, lock, base, builds),
    )
    return Prepared(settled=settled, pick=pick, lock=lock, owner=stack_owner(facts), plan=plan)


def _previous_profile(place: Place) -> str | None:
    previous = from_env_file(files.read_env_file(place.env_file)).get("STACK_PROFILE")
    return previous if previous in files.known_profiles(place.configs) else None


def _missing_bytes(place: Place, lock: Lock) -> int:
    """Bytes still to be written: of files that are not there, or not at their full size."""
    stats = stat_files(place.weights / lock.folder, lock)
    return sum(
        file.size_bytes
        for file in lock.files
        if (seen := stats[file.path]) is None or seen.size_bytes != file.size_bytes
    )


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


def _folders(place: Place, source: Path) -> Folders:
    return Folders(
        locks=place.configs / "locks",
        source=source,
        weights=place.weights,
        secrets=place.secrets,
    )


def _source(settings: Settings, profile: Profile, place: Place, lock: Lock) -> Path:
    """The folder to take weights from. Once they are proven, a disk may be unplugged again."""
    source = place.root / (settings.source_dir or profile.source.path)
    if files.is_folder(source):
        return source
    folder = place.weights / lock.folder
    if not any(discrepancies(lock, read_receipt(folder), stat_files(folder, lock))):
        return place.no_source
    raise FetchFailed(
        "the weights can't be fetched",
        why=f"there is no folder {source}",
        next_step="plug the disk in or mount the share, or choose another: --source-dir FOLDER",
    )

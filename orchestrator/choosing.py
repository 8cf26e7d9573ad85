"""Which profile, on which facts: everything that is settled before a hub or an image is asked."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.adapters import files, index, profile_files
from orchestrator.adapters.host import ca_bundle, load_facts, read_held, read_host
from orchestrator.adapters.lookout import EngineLookout
from orchestrator.adapters.placement_files import folders, read_form
from orchestrator.adapters.reach import read_reach
from orchestrator.console import Console
from orchestrator.core.advice import Advice, advise
from orchestrator.core.checks.finding import Finding
from orchestrator.core.deriving import derived
from orchestrator.core.errors import BadConfiguration, UnfitHost
from orchestrator.core.facts import HostFacts
from orchestrator.core.inventory import Inventory
from orchestrator.core.kt_legacy.form import Form
from orchestrator.core.kt_legacy.layout import problems
from orchestrator.core.kt_legacy.tree import tree_of
from orchestrator.core.memory_policy import standing_of
from orchestrator.core.preflight import refuse
from orchestrator.core.profile import Profile, WheelSource
from orchestrator.core.recommend import Pick, Ranked, least_demanding, rank, startable
from orchestrator.core.render import from_env_file
from orchestrator.core.room import given_back
from orchestrator.core.settings import Layer, Settings, settle
from orchestrator.place import Place
from wire import Lock
from wire.on_disk import missing_bytes

ABOUT_DOCKER = frozenset({"docker", "compose", "buildx", "container"})
NOT_FOR_PULL = frozenset({"engine-image", "also-needs", "ports", "toolkit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Considered:
    """The choice and what speaks for and against it. `docker_answered`: seen, and not only judged."""

    layers: tuple[Layer, ...]
    pick: Pick
    facts: HostFacts
    advice: Advice
    docker_answered: bool = False

    @property
    def profile(self) -> Profile:
        return self.advice.profile

    @property
    def settings(self) -> Settings:
        return self.advice.settled.settings


def elsewhere(place: Place) -> Place:
    """For another host: what is on this one's disk and serves here says nothing of it."""
    nowhere = place.state / "of-another-host"
    return replace(place, weights=nowhere, state=nowhere)


def read_facts(
    settings: Settings, place: Place, lookout: EngineLookout | None, saved: Path | None
) -> HostFacts:
    """Of this host, or of another whose facts were saved. What our own engine holds counts as free."""
    if saved is not None:
        loaded = load_facts(saved, settings.weights_dir)
        for warning in loaded.warnings:
            Console().note(f"warning: {warning}")
        return loaded.facts
    ports = {settings.gateway_port, settings.webui_port}
    if lookout is None:
        return read_host(place.weights, ports)
    facts = read_host(place.weights, ports - lookout.ours_listen_on())
    if facts.gpus:
        held = read_held(lookout.pids_of("inference"))
        facts = facts.model_copy(update={"gpus": given_back(facts.gpus, held)})
    available = facts.memory.available_bytes
    if available is None:
        return facts
    freed = available + lookout.memory_held("inference")
    if facts.memory.total_bytes is not None:
        freed = min(freed, facts.memory.total_bytes)
    memory = facts.memory.model_copy(update={"available_bytes": freed})
    return facts.model_copy(update={"memory": memory})


def with_reach(facts: HostFacts, settings: Settings, profiles: Sequence[Profile]) -> HostFacts:
    """Asks the hubs and the Python index: it takes seconds, so only where a choice hangs on it."""
    reach = read_reach(endpoints_of(settings), ca_bundle())
    packages = {
        source.package
        for profile in profiles
        for source in profile.sources
        if isinstance(source, WheelSource)
    }
    answers = all(map(index.answers, sorted(packages)))
    return facts.model_copy(update={"reach": reach.model_copy(update={"python_index": answers})})


def endpoints_of(settings: Settings) -> dict[str, str]:
    asked = {
        "huggingface": settings.hf_endpoint,
        "modelscope": settings.modelscope_endpoint,
    }
    return {name: str(endpoint) for name, endpoint in asked.items() if endpoint}


def ranking_of(layers: tuple[Layer, ...], place: Place, facts: HostFacts) -> tuple[Ranked, ...]:
    """Every profile judged by its published figures: nothing is fetched for it.

    A mistake in a profile of the user's is told, and is no reason not to judge the others.
    """
    settings = settle(layers).settings
    _refuse_unreadable_placement(settings, place)
    warn_of_left_out(place)
    profiles = (
        each for each in profile_files.read_all(place.configs) if _has_form(each, settings, place)
    )
    return rank((first_advice(each, layers, place, facts) for each in profiles), facts)


def _refuse_unreadable_placement(settings: Settings, place: Place) -> None:
    """What was set is wrong for every profile: one refusal rather than a warning for each."""
    if settings.placement:
        read_form(folders(place.configs, place.root), settings.placement)


def _has_form(profile: Profile, settings: Settings, place: Place) -> bool:
    try:
        with_form(profile, settings, place)
    except BadConfiguration as error:
        Console().note(f"warning: left out: {profile.name}: {error.what}: {error.why}")
        return False
    return True


def with_form(profile: Profile, settings: Settings, place: Place) -> tuple[Profile, Form | None]:
    """The placement that was chosen, and the profile with it: it takes as many cards as its rules name.

    None for other engines.
    """
    if profile.kt_legacy is None:
        return profile, None
    places = folders(place.configs, place.root)
    form = read_form(places, settings.placement or profile.kt_legacy.rules)
    options = profile.kt_legacy.model_copy(update={"rules": form.name})
    needs = profile.needs.model_copy(update={"gpus": form.gpus})
    return profile.model_copy(update={"kt_legacy": options, "needs": needs}), form


def warn_of_left_out(place: Place) -> None:
    for problem in profile_files.left_out(place.configs).values():
        Console().note(f"warning: left out: {problem}")


def first_advice(
    profile: Profile, layers: tuple[Layer, ...], place: Place, facts: HostFacts
) -> Advice:
    """By its figures and its lock, before any header is read."""
    settings = settle(layers).settings
    _refuse_unreadable_placement(settings, place)
    profile, form = with_form(profile, settings, place)
    lock = files.find_lock(place.configs, profile)
    return advise(
        profile,
        layers,
        facts,
        derived(profile.model),
        still_missing(profile, lock, place),
        locked=lock is not None,
        standing=standing_of(_started_with(place), profile.name),
        form=form,
    )


def still_missing(profile: Profile, lock: Lock | None, place: Place) -> int:
    """Bytes of weights that are not on this disk yet."""
    if lock is None:
        return profile.model.total_bytes
    return missing_bytes(place.weights / lock.folder, lock)


def consider(
    layers: tuple[Layer, ...],
    place: Place,
    lookout: EngineLookout | None,
    saved_facts: Path | None = None,
) -> Considered:
    """The profile to bring up: the one named, else the one that served last, else by the host."""
    settings = settle(layers).settings
    facts = read_facts(settings, place, lookout, saved_facts)
    name, reason = settings.profile, "as you asked"
    if name is None:
        name, reason = previous_profile(place), "it was chosen last time; another: --profile NAME"
    if name is not None:
        profile = profile_files.read_profile(place.configs, name)
        advice = first_advice(profile, layers, place, facts)
        return Considered(
            layers=layers,
            pick=Pick(name, reason),
            facts=facts,
            advice=advice,
            docker_answered=lookout is not None,
        )
    if saved_facts is None:
        facts = with_reach(facts, settings, profile_files.read_all(place.configs))
    best = startable(ranking := ranking_of(layers, place, facts))
    if best is None:
        raise _nothing_fits(ranking)
    return Considered(
        layers=layers,
        pick=Pick(
            best.name,
            "the best for this host that this release can start; others: "
            "python3 -m orchestrator recommend",
            chosen=False,
        ),
        facts=facts,
        advice=best.advice,
        docker_answered=lookout is not None,
    )


def refuse_unfit(
    considered: Considered, forced: Collection[str], *, pulling: bool = False
) -> tuple[Finding, ...]:
    """Raise with every blocker at once; returns those that the operator chose to override.

    `pulling`: weights may come before the program that is to serve them.
    """
    # Whoever got an answer from Docker hears of a missing part, with a code of its own, on using it.
    beside = (NOT_FOR_PULL if pulling else frozenset()) | (
        ABOUT_DOCKER if considered.docker_answered else frozenset()
    )
    return refuse(
        tuple(found for found in considered.advice.findings if found.check not in beside),
        forced=[name for name in forced if name not in beside],
        profile=considered.profile,
        chosen=considered.pick.chosen,
    )


def refuse_misplaced(considered: Considered, gpus: int | None = None) -> None:
    """Raise with every reason why the placement can't serve this model.

    `gpus`: cards that it is to have; None: that is not the question.
    """
    form, inventory = considered.advice.form, considered.advice.inventory
    if form is None or inventory is None:
        return
    if found := tuple(problems(form, tree_of(inventory.shape), gpus=gpus, marlin=True)):
        raise BadConfiguration(
            f"the placement {form.name} does not fit this model and this host",
            why="; ".join(found),
            next_step="correct it, or choose another of configs/placements: --placement NAME",
        )


def with_headers(considered: Considered, inventory: Inventory | None, missing: int) -> Considered:
    """Judged anew, now that the files' own headers are known."""
    advice = advise(
        considered.profile,
        considered.layers,
        considered.facts,
        inventory or considered.advice.inventory,
        missing,
        standing=considered.advice.standing,
        form=considered.advice.form,
    )
    return replace(considered, advice=advice)


def previous_profile(place: Place) -> str | None:
    previous = _started_with(place).get("STACK_PROFILE")
    with suppress(BadConfiguration):
        return previous if previous in profile_files.known_profiles(place.configs) else None
    return None


def _started_with(place: Place) -> dict[str, str]:
    return from_env_file(files.read_env_file(place.env_file))


def chosen_profile(layers: tuple[Layer, ...], place: Place) -> Profile:
    """The profile that commands without a plan are about: nothing is asked of network or Docker."""
    name = settle(layers).settings.profile or previous_profile(place)
    if name is None:
        known = profile_files.known_profiles(place.configs)
        raise BadConfiguration(
            "which profile?",
            why="none was named, and none has served yet",
            next_step="--profile NAME, one of " + ", ".join(known),
        )
    return profile_files.read_profile(place.configs, name)


def _nothing_fits(ranking: Sequence[Ranked]) -> UnfitHost:
    smallest = least_demanding(ranking) if ranking else None
    why = smallest.against if smallest else ("there is no profile at all",)
    return UnfitHost(
        "no profile can run on this host",
        why=(f"not even {smallest.name if smallest else 'one'}: {why[0]}", *why[1:]),
        next_step="python3 -m orchestrator recommend says what each one lacks, and doctor why",
    )

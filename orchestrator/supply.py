"""Where a profile's weights are to come from, and what they must be: asks the sources, makes the lock.

A lock that exists decides: sources are only compared with it. Only `renewed_supply` makes another.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from typing_extensions import assert_never

from orchestrator.core.errors import (
    BadConfiguration,
    FetchFailed,
    OrchestratorError,
    VerificationFailed,
)
from orchestrator.core.locking import (
    Listing,
    SourceUnavailable,
    as_published,
    choose,
    describe,
    disagreements,
    has_a_commit,
    make_lock,
    refuse_disagreement,
)
from orchestrator.core.profile import (
    FolderSource,
    HttpSource,
    HuggingFaceSource,
    ModelScopeSource,
    Profile,
    ProfileSource,
    WheelSource,
)
from orchestrator.core.settings import Settings
from orchestrator.world import Clock, Hubs
from wire import Lock
from wire.order import (
    Folder,
    HttpFolder,
    HuggingFace,
    ModelScope,
    Order,
    Source,
    Tuning,
    WheelMember,
)

_T = TypeVar("_T")
ASK_TIMES = 3
LONGEST_PAUSE_S = 30.0
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What finding weights needs of the outside. `root`: what relative folders are relative to."""

    root: Path
    hubs: Hubs
    locate_wheel: Callable[[str, str, str], WheelMember]
    is_folder: Callable[[Path], bool]
    clock: Clock
    today: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """`notes`: what the operator should know of sources that were left out or could not be asked."""

    lock: Lock
    sources: tuple[Source, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Refusal:
    """`wrong`: it holds other bytes than it should. `kept`: the job may still try it."""

    source: str
    said: str
    next_step: str = ""
    wrong: bool = False
    kept: bool = False

    def __str__(self) -> str:
        return f"{self.source}: {self.said}"


def locked_supply(lock: Lock, profile: Profile, settings: Settings, outside: Outside) -> Supply:
    """Every source that may bring the locked bytes. One that can't be asked now stays in."""
    sources: list[Source] = []
    refusals: list[_Refusal] = []
    for wanted in _wanted(profile, settings):
        source: Source | None = None
        try:
            source = _located(wanted, settings, outside, lock)
            listing = _patiently(outside.clock, partial(outside.hubs.listing, source))
        except SourceUnavailable as refusal:
            refused = _refused(source, wanted, refusal)
            if source is not None and not refusal.lasting:
                sources.append(source)
                refused = replace(refused, kept=True)
            refusals.append(refused)
            continue
        if listing is None:
            sources.append(source)
        elif found := tuple(disagreements(as_published(lock), listing)):
            said = f"not what the lock says: {'; '.join(found)}"
            refusals.append(_Refusal(listing.source, said, wrong=True))
        else:
            sources.append(_pinned(source, listing))
    if not sources:
        raise _nothing_left(profile, refusals)
    notes = tuple(
        f"{refusal}; {'the lock is enough' if refusal.kept else 'it is left out'}"
        for refusal in refusals
    )
    return Supply(lock=lock, sources=tuple(sources), notes=notes)


def renewed_supply(profile: Profile, settings: Settings, outside: Outside) -> Supply:
    """A new lock of what the sources publish today, compared with one another before any is used."""
    sources: list[Source] = []
    refusals: list[_Refusal] = []
    listings: list[Listing] = []
    for wanted in _wanted(profile, settings):
        source: Source | None = None
        try:
            source = _located(wanted, settings, outside, None)
            listing = _whole_listing(source, wanted, outside)
        except SourceUnavailable as refusal:
            refusals.append(_refused(source, wanted, refusal))
            continue
        if listing is None:
            sources.append(source)
            continue
        for other in listings:
            refuse_disagreement(other, listing)
        listings.append(listing)
        sources.append(_pinned(source, listing))
    if not listings:
        raise _no_hashes(profile, refusals, sources)
    lock = make_lock(
        listings[0],
        at=outside.today(),
        published_by=[listing.source for listing in listings],
    )
    notes = tuple(f"{refusal}; it is left out" for refusal in refusals)
    return Supply(lock=lock, sources=tuple(sources), notes=notes)


def proven_supply(lock: Lock, profile: Profile, settings: Settings, outside: Outside) -> Supply:
    """For weights that are all here: nobody is asked, and nothing has to be reachable."""
    sources = []
    for wanted in _wanted(profile, settings):
        if not isinstance(wanted, WheelSource | FolderSource):
            with suppress(SourceUnavailable):
                sources.append(_located(wanted, settings, outside, lock))
    return Supply(lock=lock, sources=(*sources, Folder()))


def make_order(supply: Supply, settings: Settings, proxies: Mapping[str, str]) -> Order:
    return Order.model_validate(
        {
            "lock": supply.lock,
            "sources": supply.sources,
            "tuning": Tuning(limit_rate=settings.limit_rate, streams=settings.streams),
            "proxies": proxies,
        }
    )


def loopback_proxies(proxies: Mapping[str, str]) -> tuple[str, ...]:
    """Warnings: a container has a loopback of its own."""
    return tuple(
        f"the {name} proxy is at {urlsplit(proxies[name]).hostname}, which the download's container "
        "can't reach: let it listen on another address of this host"
        for name in ("http", "https")
        if name in proxies and urlsplit(proxies[name]).hostname in LOOPBACK
    )


def source_folder(profile: Profile, settings: Settings, root: Path) -> Path | None:
    """The folder of this host that weights may come from."""
    for wanted in _wanted(profile, settings):
        if isinstance(wanted, FolderSource):
            return root / wanted.path
    return None


def _wanted(profile: Profile, settings: Settings) -> tuple[ProfileSource, ...]:
    if settings.source_dir is not None:
        return (FolderSource(kind="folder", path=settings.source_dir),)
    return profile.sources


def _located(
    wanted: ProfileSource, settings: Settings, outside: Outside, lock: Lock | None
) -> Source:
    """The source with its address. With a lock: at the locked commit, where it names one."""
    commit = lock.revision if lock is not None and has_a_commit(lock) else None
    match wanted:
        case HuggingFaceSource(repo=repo, revision=revision):
            endpoint = _endpoint(settings.hf_endpoint, "hf_endpoint")
            return HuggingFace(endpoint=endpoint, repo=repo, revision=commit or revision)
        case ModelScopeSource(repo=repo, revision=revision):
            endpoint = _endpoint(settings.modelscope_endpoint, "modelscope_endpoint")
            return ModelScope(endpoint=endpoint, repo=repo, revision=revision)
        case HttpSource(url=url):
            return HttpFolder(url=url)
        case FolderSource(path=path):
            if not outside.is_folder(outside.root / path):
                raise SourceUnavailable(
                    f"there is no folder {outside.root / path}",
                    next_step="plug the disk in or mount the share, or choose another: "
                    "--source-dir FOLDER",
                    lasting=True,
                )
            return Folder()
        case WheelSource(package=package, version=version, member=member):
            return outside.locate_wheel(package, version, member)
        case _:
            assert_never(wanted)


def _endpoint(endpoint: str | None, name: str) -> str:
    if endpoint is None:
        raise SourceUnavailable(f"{name} is not set", next_step=f"set ORCH_{name.upper()}")
    return endpoint


def _whole_listing(source: Source, wanted: ProfileSource, outside: Outside) -> Listing | None:
    """The files that the profile wants, each with size and sha256 as far as they are to be had."""
    listing = _patiently(outside.clock, partial(outside.hubs.listing, source))
    if listing is None:
        return None
    patterns = () if isinstance(wanted, WheelSource | FolderSource) else wanted.patterns
    chosen = choose(listing, patterns) if patterns else listing
    files = (
        _patiently(outside.clock, partial(outside.hubs.completed, source, chosen, file))
        for file in chosen.files
    )
    return replace(chosen, files=tuple(files))


def _pinned(source: Source, listing: Listing) -> Source:
    if isinstance(source, HuggingFace):
        return source.model_copy(update={"revision": listing.commit})
    return source


def _refused(source: Source | None, wanted: ProfileSource, refusal: SourceUnavailable) -> _Refusal:
    name = wanted.kind if source is None else describe(source)
    return _Refusal(name, refusal.said, refusal.next_step)


def _nothing_left(profile: Profile, refusals: Sequence[_Refusal]) -> OrchestratorError:
    why = tuple(map(str, refusals))
    if any(refusal.wrong for refusal in refusals):
        return VerificationFailed(
            f"no source has the weights of {profile.name} as they are locked",
            why=why,
            next_step="see what changed, and whether you want it: "
            f"python3 -m orchestrator pull --profile {profile.name} --update-lock",
        )
    steps = dict.fromkeys(refusal.next_step for refusal in refusals if refusal.next_step)
    return FetchFailed(
        "the weights can't be fetched",
        why=why,
        next_step=tuple(steps) or "try again later",
    )


def _no_hashes(
    profile: Profile, refusals: Sequence[_Refusal], sources: Sequence[Source]
) -> OrchestratorError:
    if refusals:
        return _nothing_left(profile, refusals)
    return BadConfiguration(
        f"{profile.name} has no lock, and none can be made",
        why=f"no source publishes hashes: {', '.join(map(describe, sources))}",
        next_step="put a SHA256SUMS file into the web folder, add a hub to the profile's sources, or "
        f"bring configs/locks/{profile.lock_name} along",
    )


def _patiently(clock: Clock, ask: Callable[[], _T]) -> _T:
    """Ask again, a few times, where the source answers that it is busy."""
    for _ in range(ASK_TIMES - 1):
        try:
            return ask()
        except SourceUnavailable as refusal:
            if refusal.again_after_s is None:
                raise
            clock.sleep(min(refusal.again_after_s, LONGEST_PAUSE_S))
    return ask()

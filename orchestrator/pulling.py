"""The commands about weights alone: fetch them, prove them, see them, remove them."""

from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from orchestrator.adapters import files, profile_files, shelf
from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.lookout import EngineLookout
from orchestrator.adapters.stack import ComposeStack
from orchestrator.aligning import aligned
from orchestrator.choosing import chosen_profile, consider
from orchestrator.commands import (
    JOB_GOES_ON,
    Session,
    Typed,
    carry_out,
    print_json,
    stack_of,
    tell_job_goes_on,
)
from orchestrator.console import Console
from orchestrator.core.errors import (
    INTERRUPTED_EXIT_CODE,
    AlreadyRunning,
    BadConfiguration,
    VerificationFailed,
)
from orchestrator.core.events import Event, GateChecked, as_record
from orchestrator.core.gates import Verdict
from orchestrator.core.locking import lock_diff
from orchestrator.core.plan import RunJob, weights_step
from orchestrator.core.shelf import Revision, as_row, find, refuse_removal
from orchestrator.execute import watch
from orchestrator.place import Place, settings_without_profile
from orchestrator.prepare import Need, Prepared, prepare_pull, running_order
from wire import Lock, discrepancies, read_receipt, stat_files

VERBS = {Need.CHECK: "--full", Need.REPAIR: "--repair"}


def pull(typed: Typed, *, detach: bool, update_lock: bool) -> int:
    """Fetch, or attach to a fetch under way, also where another terminal already watches it."""
    try:
        return _pull(typed, detach=detach, update_lock=update_lock)
    except AlreadyRunning:
        if update_lock or not _watched(typed, detach=detach):
            raise
    return 0


def _watched(typed: Typed, *, detach: bool) -> bool:
    """Show the job that another run looks after, until its end. False: that is not what it does."""
    layers, settings, place = settings_without_profile(typed.root, typed.flags)
    lookout = EngineLookout(settings.project)
    at_work = running_order(place, lookout)
    if at_work is None:
        return False
    profile, order = at_work
    if settings.profile is not None:
        wanted = files.find_lock(place.configs, chosen_profile(layers, place))
        if wanted is None or not wanted.pins_the_same(order.lock):
            return False
    lookout.watch_weights(place.weights, order.lock)
    step = weights_step(settings, order.lock)
    with Console(verbose=typed.verbose) as console:
        console.note("another run looks after this download; here it is only shown")
        for event in () if detach else watch(step, profile, lookout, SystemClock()):
            console.show(event)
            if typed.as_json:
                print_json(as_record(event))
    return True


def _pull(typed: Typed, *, detach: bool, update_lock: bool) -> int:
    layers, settings, place = settings_without_profile(typed.root, typed.flags)
    place.state.mkdir(parents=True, exist_ok=True)
    with files.run_lock(place.state, "pull"), Console(verbose=typed.verbose) as console:
        lookout = EngineLookout(settings.project)
        considered = consider(layers, place, lookout)
        need = Need.RENEW if update_lock else Need.FETCH
        prepared = prepare_pull(considered, place, lookout, need, typed.forced)
        _tell_lock(console, prepared, place)
        session = Session(
            command="pull", typed=typed, place=place, lookout=lookout, console=console
        )
        try:
            with closing(carry_out(prepared, session)) as events:
                for event in events:
                    if detach and _is_under_way(event):
                        console.note(JOB_GOES_ON)
                        _tell_lock_waits(console, prepared)
                        return 0
        except KeyboardInterrupt:
            tell_job_goes_on(console, lookout)
            _tell_lock_waits(console, prepared)
            return INTERRUPTED_EXIT_CODE
    _tell_pulled(typed, prepared, place)
    return 0


def stop(typed: Typed) -> int:
    """End the running job. What it has is kept, and the next `pull` goes on from there."""
    _, settings, place = settings_without_profile(typed.root, typed.flags)
    if not EngineLookout(settings.project).is_running("weights"):
        print("No download is running.")
        return 0
    stack_of(place, settings).stop("weights")
    print("Stopped. What was fetched is kept: python3 -m orchestrator pull goes on from there.")
    return 0


def _tell_lock(console: Console, prepared: Prepared, place: Place) -> None:
    path = place.configs / "locks" / prepared.profile.lock_name
    if prepared.earlier is None:
        lock = prepared.lock
        console.note(
            f"new lock {path}: {lock.repo}@{lock.revision[:12]}, {lock.count}, "
            f"{lock.total_bytes} bytes, from {lock.locked_from}"
        )
    elif prepared.lock != prepared.earlier:
        changes = lock_diff(prepared.earlier, prepared.lock)
        console.note(f"{path} changes, once all of it is here and proven:\n{changes}")


def _tell_lock_waits(console: Console, prepared: Prepared) -> None:
    """Nobody is left to change the lock once the job has proven the new weights."""
    if prepared.earlier is not None and prepared.lock != prepared.earlier:
        again = f"pull --profile {prepared.profile.name} --update-lock"
        console.note(f"The lock is still the old one. When the job is done: {again}, once more.")


def _is_under_way(event: Event) -> bool:
    return (
        isinstance(event, GateChecked)
        and event.step == "weights"
        and event.result.verdict is Verdict.WAIT
    )


def _tell_pulled(typed: Typed, prepared: Prepared, place: Place) -> None:
    lock, folder = prepared.lock, place.weights / prepared.lock.folder
    if typed.as_json:
        record = {"folder": str(folder), "files": len(lock.files), "bytes": lock.total_bytes}
        print_json({"event": "Pulled", "profile": prepared.profile.name} | record)
        return
    print(f"Proven: {lock.count}, {lock.total_bytes / 1e9:.2f} GB in {folder}.")
    print(f"Next: python3 -m orchestrator up --profile {prepared.profile.name}")


def verify_quick(typed: Typed) -> int:
    """Compare what the file system says with the receipt: milliseconds, and no byte is read."""
    layers, _, place = settings_without_profile(typed.root, typed.flags)
    profile = chosen_profile(layers, place)
    lock = files.find_lock(place.configs, profile)
    if lock is None:
        raise _no_lock(profile.name)
    folder = place.weights / lock.folder
    found = tuple(map(str, discrepancies(lock, read_receipt(folder), stat_files(folder, lock))))
    if typed.as_json:
        print_json({"profile": profile.name, "folder": str(folder), "unproven": found})
    if found:
        raise VerificationFailed(
            f"the weights of {profile.name} are not proven",
            why=found,
            next_step=f"python3 -m orchestrator verify --repair --profile {profile.name}",
        )
    if not typed.as_json:
        print(f"{profile.name}: {lock.count} as when proven.")
    return 0


def _no_lock(profile: str) -> BadConfiguration:
    return BadConfiguration(
        f"{profile} has no lock yet",
        why="nothing says what its weights must be",
        next_step=f"python3 -m orchestrator pull --profile {profile}",
    )


def verify_by_job(typed: Typed, need: Need) -> int:
    """Have the job read every byte. Its words and its exit code are the answer."""
    layers, settings, place = settings_without_profile(typed.root, typed.flags)
    place.state.mkdir(parents=True, exist_ok=True)
    with files.run_lock(place.state, "verify"), Console(verbose=typed.verbose) as console:
        lookout = EngineLookout(settings.project)
        if lookout.is_running("weights"):
            raise AlreadyRunning(
                "the weights job is at work",
                why="two at once would be in each other's way",
                next_step="wait for it (python3 -m orchestrator status), or pull --stop",
            )
        if files.find_lock(place.configs, chosen_profile(layers, place)) is None:
            raise _no_lock(chosen_profile(layers, place).name)
        prepared = prepare_pull(consider(layers, place, lookout), place, lookout, need)
        images = tuple(s for s in prepared.plan.steps if not isinstance(s.action, RunJob))
        prepared = replace(prepared, plan=replace(prepared.plan, steps=images))
        session = Session(
            command="verify", typed=typed, place=place, lookout=lookout, console=console
        )
        for _ in carry_out(prepared, session):
            pass  # it tells by itself
        stack = ComposeStack(place.root, prepared.env_file, settings.project)
        code = stack.run_job("weights", "verify", VERBS[need])
        if code:
            ended = {"what": "the job found fault", "why": f"exit {code}", "next_step": "see above"}
            journal = files.JournalFile(place.state / "journal.jsonl")
            journal.append({"event": "RunEnded", "exit_code": code} | ended)
    return code


def list_weights(typed: Typed) -> int:
    _, settings, place = settings_without_profile(typed.root, typed.flags)
    locks = _locks(place)
    revisions = _revisions(place, settings.project, locks)
    if typed.as_json:
        print_json({"folder": str(place.weights), "revisions": [_record(r) for r in revisions]})
        return 0
    rows = [as_row(revision, locks) for revision in revisions]
    if not rows:
        print(f"{place.weights} holds no weights.")
    for line in aligned(rows):
        print(line)
    return 0


def remove_weights(typed: Typed, name: str, *, agreed: bool) -> int:
    _, settings, place = settings_without_profile(typed.root, typed.flags)
    place.state.mkdir(parents=True, exist_ok=True)
    with files.run_lock(place.state, "weights remove"):
        revision = find(name, _revisions(place, settings.project, _locks(place)))
        refuse_removal(revision, agreed=agreed)
        shelf.remove(revision, place.weights)
    print(f"Removed: {revision.folder}, {revision.disk_bytes / 1e9:.2f} GB.")
    return 0


def clean_weights(typed: Typed, *, agreed: bool) -> int:
    """Remove what downloads left unfinished, except the last one's: it goes on from there."""
    _, settings, place = settings_without_profile(typed.root, typed.flags)
    found = [r for r in shelf.read_revisions(place.weights) if r.part_bytes]
    if not found:
        print("Nothing is unfinished.")
        return 0
    if not agreed:
        raise BadConfiguration(
            "nothing was removed",
            why=tuple(f"{r.folder} holds {r.part_bytes / 1e9:.2f} GB unfinished" for r in found),
            next_step="python3 -m orchestrator weights clean --yes (what the last download has "
            "is kept)",
        )
    return stack_of(place, settings).run_job("weights", "clean")


def _locks(place: Place) -> dict[str, Lock]:
    found = {}
    for name in profile_files.known_profiles(place.configs):
        with suppress(BadConfiguration):  # a profile that can't be read is no reason not to look
            lock = files.find_lock(place.configs, profile_files.read_profile(place.configs, name))
            if lock is not None:
                found[name] = lock
    return found


def _revisions(place: Place, project: str, locks: dict[str, Lock]) -> tuple[Revision, ...]:
    """The folders, each with what has it open now: the engine, or a job at work."""
    services = EngineLookout(project).services()
    users: dict[str, list[str]] = {}
    for service in ("inference", "weights"):
        seen, _, profile = services.get(service, (None, "", ""))
        if seen is None or seen.status not in {"running", "restarting"} or profile not in locks:
            continue
        users.setdefault(locks[profile].folder, []).append(service)
    return tuple(
        replace(revision, users=tuple(users.get(revision.folder, ())))
        for revision in shelf.read_revisions(place.weights)
    )


def _record(revision: Revision) -> dict[str, Any]:
    receipt = revision.receipt
    return {
        "name": revision.folder,
        "disk_bytes": revision.disk_bytes,
        "unfinished_bytes": revision.part_bytes,
        "proven_files": [] if receipt is None else [file.path for file in receipt.files],
        "in_use_by": list(revision.users),
    }

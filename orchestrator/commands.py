"""One function per command. Each takes what was typed and gives an exit code."""

import json
import platform
import sys
from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator import __version__
from orchestrator.adapters import files, key_files
from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.host import ca_bundle, read_health
from orchestrator.adapters.images import DockerImages
from orchestrator.adapters.lookout import EngineLookout
from orchestrator.adapters.secret_files import make_secrets, read_secrets
from orchestrator.adapters.stack import ComposeStack
from orchestrator.choosing import consider
from orchestrator.console import Console
from orchestrator.core import render
from orchestrator.core.arguments import rules_name
from orchestrator.core.errors import INTERRUPTED_EXIT_CODE, BadConfiguration, OrchestratorError
from orchestrator.core.events import Event, StepKept, StepPassed, as_record
from orchestrator.core.gateway_policy import gateway_policy
from orchestrator.core.placement import MemoryPolicy
from orchestrator.core.plan import AS_BEFORE
from orchestrator.core.render import from_env_file
from orchestrator.core.settings import Settings
from orchestrator.core.spread import Intended, Spread, judge
from orchestrator.execute import execute
from orchestrator.place import Place, settings_without_profile
from orchestrator.prepare import Prepared, prepare
from orchestrator.world import World

JOB_GOES_ON = (
    "The download goes on in the background. Watch it: python3 -m orchestrator pull. "
    "Stop it: python3 -m orchestrator pull --stop"
)
SERVICES = ("weights", "inference", "gateway", "webui", "prometheus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The command line, parsed. `flags`: settings given as flags, None where not.

    `forced`: checks that are not to refuse. `saved_facts`: judge that host, not this one.
    """

    root: Path
    flags: Mapping[str, object] = field(default_factory=dict)
    forced: tuple[str, ...] = ()
    saved_facts: Path | None = None
    as_json: bool = False
    verbose: bool = False


def up(typed: Typed) -> int:
    layers, settings, place = settings_without_profile(typed.root, typed.flags)
    place.state.mkdir(parents=True, exist_ok=True)
    with files.run_lock(place.state, "up"), Console(verbose=typed.verbose) as console:
        lookout = EngineLookout(settings.project)
        considered = consider(layers, place, lookout)
        prepared = prepare(considered, place, lookout, typed.forced)
        session = Session(command="up", typed=typed, place=place, lookout=lookout, console=console)
        try:
            happened = list(carry_out(prepared, session))
        except KeyboardInterrupt:
            tell_job_goes_on(console, lookout)
            raise
        spread = spread_of(place, lookout)
        for warning in spread.warnings if spread else ():
            console.note(f"warning: {warning}")
    _tell_ready(typed, prepared.settings, place.secrets, happened)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a command works with while it holds the run lock."""

    command: str
    typed: Typed
    place: Place
    lookout: EngineLookout
    console: Console


def carry_out(prepared: Prepared, session: Session) -> Generator[Event, None, None]:
    """Execute the plan, told to the console, the journal and programs; yields what happens."""
    place, lookout, console = session.place, session.lookout, session.console
    console.note(f"profile {prepared.profile.name}: {prepared.considered.pick.reason}")
    console.note(f"  {prepared.profile.summary}")
    for note in prepared.supply.notes:
        console.note(f"note: {note}")
    if prepared.considered.advice.settled.origins["metrics"] == AS_BEFORE:
        console.note("note: Prometheus stays, as last time; to end it: --metrics false")
    journal = files.JournalFile(place.state / "journal.jsonl")
    started = {"command": session.command, "profile": prepared.profile.name}
    journal.append({"event": "RunStarted"} | started)
    if prepared.forced:
        console.note(f"forced, against the check's advice: {', '.join(prepared.forced)}")
        journal.append({"event": "ChecksForced", "checks": list(prepared.forced)})
    try:
        world = _ready_world(prepared, place, lookout)
        with closing(execute(prepared.plan, world)) as events:
            for event in events:
                console.show(event)
                journal.record(event)
                if isinstance(event, StepKept | StepPassed) and event.step == "weights":
                    _settle_lock(prepared, place)
                if session.typed.as_json:
                    print_json(as_record(event))
                yield event
    except (OrchestratorError, KeyboardInterrupt) as error:
        journal.append({"event": "RunEnded"} | _outcome(error))
        raise
    except GeneratorExit:  # a detached run: what it was asked for is done
        journal.append({"event": "RunEnded", "exit_code": 0})
        raise
    journal.append({"event": "RunEnded", "exit_code": 0})


def tell_job_goes_on(console: Console, lookout: EngineLookout) -> None:
    with suppress(OrchestratorError):  # Docker may be what was interrupted
        if lookout.is_running("weights"):
            console.note(JOB_GOES_ON)


def _ready_world(prepared: Prepared, place: Place, lookout: EngineLookout) -> World:
    """Make the files and folders that the stack is given, and the world to start it in."""
    make_secrets(place.secrets, prepared.owner)
    files.give_folder(place.weights, prepared.owner)
    files.give_folder(place.no_source, prepared.owner)
    files.give_folder(place.job, prepared.owner)
    files.give_folder(place.usage, prepared.owner)
    files.give_folder(place.placement, prepared.owner)
    _tell_gateway(prepared, place)
    if prepared.earlier is None:
        _settle_lock(prepared, place)
    for mounted in (place.configs / "locks", *place.metrics_rules):
        files.let_containers_read(mounted)
    if prepared.order is not None:
        files.write_order(place.order_file(prepared.profile.name), prepared.order, prepared.owner)
    if prepared.rules and prepared.profile.kt_legacy is not None:
        name = rules_name(prepared.profile.kt_legacy)
        files.write_rules(place.placement / name, prepared.rules)
    files.write_env_file(prepared.env_file, render.as_env_file(prepared.plan.env))
    settings = prepared.settings
    lookout.watch_weights(place.weights, prepared.lock)
    if gpus := prepared.considered.advice.placement.gpus:
        lookout.watch_cards(lambda: read_health(gpus))
    lookout.use_api_key(read_secrets(place.secrets)["gateway_api_key"])
    return World(
        images=DockerImages(
            place.images, place.state / "logs", settings.debian_mirror, ca_bundle()
        ),
        stack=ComposeStack(place.root, prepared.env_file, settings.project),
        lookout=lookout,
        clock=SystemClock(),
    )


def _tell_gateway(prepared: Prepared, place: Place) -> None:
    """What the gateway reads while it runs. A pull changes nothing of what a running stack does."""
    key_files.make_folder(place.control, prepared.owner)
    if prepared.env_file == place.env_file:
        advice = prepared.considered.advice
        policy = gateway_policy(prepared.profile, prepared.settings, advice.placement)
        key_files.write_policy(place.control, policy, prepared.owner)


def _settle_lock(prepared: Prepared, place: Place) -> None:
    """Put the lock on disk: a first one at once, another in its place only once all is proven.

    The serving engine checks its weights against the lock on disk whenever it starts.
    """
    if prepared.lock != prepared.earlier:
        files.write_lock(place.configs, prepared.profile, prepared.lock)


def _outcome(error: BaseException) -> dict[str, Any]:
    if isinstance(error, OrchestratorError):
        return {
            "exit_code": error.exit_code,
            "what": error.what,
            "why": error.why,
            "next_step": error.next_step,
        }
    return {
        "exit_code": INTERRUPTED_EXIT_CODE,
        "what": "interrupted",
        "why": "somebody typed Ctrl-C, or the machine asked programs to end",
        "next_step": "the same command goes on from there",
    }


def _tell_ready(typed: Typed, settings: Settings, secrets: Path, happened: list[Event]) -> None:
    proven = {e.step: e.reason for e in happened if isinstance(e, StepKept | StepPassed)}
    chat = f"http://127.0.0.1:{settings.webui_port}"
    api = f"http://127.0.0.1:{settings.gateway_port}/v1"
    if typed.as_json:
        print_json(
            {"event": "Ready", "chat": chat, "api": api, "first_token": proven["first token"]}
        )
        return
    if not any(isinstance(event, StepPassed) for event in happened):
        print("Nothing to do: everything already is as asked.")
    print(f"\nReady. {proven['first token'].capitalize()}.")
    print(f"  chat  {chat}   log in as {settings.admin_email},")
    print(f"        the password is in {secrets}/webui_admin_password")
    print(f"  API   {api}   the key is in {secrets}/gateway_api_key")


def spread_of(place: Place, lookout: EngineLookout) -> Spread | None:
    """The pages of the serving engine against what it was started with."""
    told = from_env_file(files.read_env_file(place.env_file))
    try:
        policy = MemoryPolicy(told.get("STACK_MEMORY_POLICY", ""))
    except ValueError:  # it was started by an earlier version
        return None
    nodes = tuple(int(node) for node in told.get("STACK_MEMORY_NODES", "").split(",") if node)
    return judge(Intended(policy=policy, nodes=nodes), lookout.page_report())


def logs(typed: Typed, services: list[str], *, follow: bool, tail: str | None) -> int:
    _, settings, place = settings_without_profile(typed.root, typed.flags)
    try:
        for chunk in stack_of(place, settings).follow_logs(services, follow=follow, tail=tail):
            sys.stdout.write(chunk)
            sys.stdout.flush()
    except KeyboardInterrupt:  # how one leaves --follow
        return INTERRUPTED_EXIT_CODE
    return 0


def down(typed: Typed, *, volumes: bool) -> int:
    _, settings, place = settings_without_profile(typed.root, typed.flags)
    stack = stack_of(place, settings)
    with files.run_lock(place.state, "down"):
        stack.down(volumes=volumes)
    kept = "" if volumes else ", the chat page's accounts and chats"
    print(f"Stopped and removed. Kept: the weights in {place.weights}{kept}.")
    if volumes:
        print(
            "Removed with it: the chat page's accounts and chats, and what Prometheus has collected "
            "if it ever ran."
        )
    return 0


def stack_of(place: Place, settings: Settings) -> ComposeStack:
    """The stack as it was last started, or as far as `pull` got."""
    written = [path for path in (place.env_file, place.pull_env_file) if path.exists()]
    if not written:
        raise BadConfiguration(
            "there is no stack here yet",
            why=f"{place.env_file} does not exist",
            next_step="python3 -m orchestrator up",
        )
    EngineLookout(settings.project)  # Docker answers, or says why not
    return ComposeStack(place.root, written[0], settings.project)


def show_secrets(typed: Typed) -> int:
    _, _, place = settings_without_profile(typed.root, typed.flags)
    if not sys.stdout.isatty():
        raise BadConfiguration(
            "secrets are shown on a terminal only",
            why="the output goes to a file or another program",
            next_step=f"a program reads the file itself, such as {place.secrets}/gateway_api_key",
        )
    found = read_secrets(place.secrets)
    if not found:
        print("There are none yet. Next: python3 -m orchestrator up")
    for name, value in found.items():
        print(f"{name:<22} {value}")
    return 0


def version(typed: Typed) -> int:
    record = {"orchestrator": __version__, "python": platform.python_version()}
    if typed.as_json:
        print_json(record)
    else:
        print(f"orchestrator {record['orchestrator']}, Python {record['python']}")
    return 0


def print_json(record: Mapping[str, Any], indent: int | None = None) -> None:
    print(json.dumps(record, ensure_ascii=False, indent=indent), flush=True)

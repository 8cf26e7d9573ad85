"""Arguments in, exit code out."""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from orchestrator import advising, catalogue, commands, key_options, pulling, reporting
from orchestrator.commands import SERVICES, Typed
from orchestrator.console import Console
from orchestrator.core.errors import (
    INTERRUPTED_EXIT_CODE,
    ActionFailed,
    BadConfiguration,
    OrchestratorError,
)
from orchestrator.core.settings import Settings
from orchestrator.prepare import Need

ALL_SETTINGS = "Every setting is a flag here too: see `python3 -m orchestrator up --help`."
ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str] | None = None) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    typed = Typed(
        root=ROOT,
        flags={name: getattr(arguments, name, None) for name in Settings.model_fields},
        as_json=getattr(arguments, "json", False) or getattr(arguments, "progress", "") == "json",
        verbose=arguments.verbose,
        forced=tuple(getattr(arguments, "force", ())),
        saved_facts=getattr(arguments, "facts", None),
    )
    if typed.verbose:
        logging.basicConfig(format="%(message)s", stream=sys.stderr)
        logging.getLogger("orchestrator").setLevel(logging.DEBUG)
    signal.signal(signal.SIGTERM, _as_interrupt)
    if arguments.command == "profiles" and (arguments.verb == "show") > len(arguments.names):
        parser.error("profiles show takes the name of one")
    if arguments.command == "weights" and (arguments.verb == "remove") != bool(arguments.name):
        parser.error("weights list takes no name, weights remove takes one")
    try:
        return _command(arguments)(typed)
    except OrchestratorError as error:
        Console().explain(error)
        return error.exit_code
    except ActionFailed as failure:
        Console().explain(
            OrchestratorError(
                f"{arguments.command} did not work",
                why=failure.reason,
                next_step="python3 -m orchestrator status",
            )
        )
        return OrchestratorError.exit_code
    except BrokenPipeError:  # `logs | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # what no adapter foresaw
        unusable = BadConfiguration(
            "a file or a folder can't be used",
            why=str(error),
            next_step="run as the user who installed, and see that the disk is neither full nor "
            "read-only: df -h",
        )
        Console().explain(unusable)
        return unusable.exit_code
    except KeyboardInterrupt:
        Console().note("Interrupted. Nothing is lost: the same command goes on from here.")
        return INTERRUPTED_EXIT_CODE


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _command(arguments: argparse.Namespace) -> Callable[[Typed], int]:
    return {
        "up": advising.plan if getattr(arguments, "dry_run", False) else commands.up,
        "plan": advising.plan,
        "recommend": advising.recommend,
        "doctor": lambda typed: advising.doctor(
            typed, only=arguments.only, save_to=arguments.save_facts
        ),
        "profiles": lambda typed: _profiles(typed, arguments),
        "pull": lambda typed: _pull(typed, arguments),
        "verify": lambda typed: _verify(typed, arguments),
        "weights": lambda typed: _weights(typed, arguments),
        "status": reporting.status,
        "logs": lambda typed: commands.logs(
            typed, arguments.services, follow=arguments.follow, tail=arguments.tail
        ),
        "down": lambda typed: commands.down(typed, volumes=arguments.volumes),
        "secrets": commands.show_secrets,
        "key": lambda typed: key_options.run(typed, arguments),
        "version": commands.version,
    }[arguments.command]


def _profiles(typed: Typed, arguments: argparse.Namespace) -> int:
    if arguments.verb == "list":
        return catalogue.list_profiles(typed)
    if arguments.verb == "show":
        return catalogue.show_profile(typed, arguments.names[0])
    return catalogue.validate_profiles(typed, arguments.names)


def _pull(typed: Typed, arguments: argparse.Namespace) -> int:
    if arguments.stop:
        return pulling.stop(typed)
    return pulling.pull(typed, detach=arguments.detach, update_lock=arguments.update_lock)


def _verify(typed: Typed, arguments: argparse.Namespace) -> int:
    if arguments.full or arguments.repair:
        return pulling.verify_by_job(typed, Need.REPAIR if arguments.repair else Need.CHECK)
    return pulling.verify_quick(typed)


def _weights(typed: Typed, arguments: argparse.Namespace) -> int:
    if arguments.verb == "list":
        return pulling.list_weights(typed)
    if arguments.verb == "clean":
        return pulling.clean_weights(typed, agreed=arguments.yes)
    return pulling.remove_weights(typed, arguments.name, agreed=arguments.yes)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m orchestrator",
        description="Bring a private chat service up, prove that it serves, take it down.",
        epilog="Settings: flag, ORCH_NAME variable, appliance.toml, profile, default; in that order.",
    )
    parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str, *, json: bool = True) -> argparse.ArgumentParser:
        shown = name in {"up", "plan"}
        command = parsers.add_parser(
            name, help=text, description=text, epilog=None if shown else ALL_SETTINGS
        )
        command.add_argument("-v", "--verbose", action="store_true", help="say more")
        if json:
            command.add_argument("--json", action="store_true", help="for programs")
        _add_settings(command, shown=shown)
        return command

    up = add("up", "bring the stack up, step by step, each proven")
    up.add_argument("--dry-run", action="store_true", help="only show the plan")
    _add_force(up)
    plan = add("plan", "show what `up` would do and whether it fits, and change nothing")
    _add_force(plan)
    _add_facts(plan)
    _add_facts(add("recommend", "which profile suits this host, and why no larger one does"))
    _add_doctor(add("doctor", "check this host, and say how to mend what is wrong with it"))
    profiles = add("profiles", "the catalogue of models, and your own in configs/profiles.d")
    profiles.add_argument(
        "verb",
        choices=["list", "show", "validate"],
        help="list: all of them, with what they need. show NAME: one, each figure with its source. "
        "validate [NAME|FILE ...]: all mistakes in these, or in all, with their lines",
    )
    profiles.add_argument(
        "names", nargs="*", metavar="NAME", help="of show one; of validate also files"
    )
    _add_pull(add("pull", "fetch and prove the weights; the download outlives this terminal"))
    verify = add("verify", "are the weights what their lock says?")
    how = verify.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="compare sizes and times (the default)")
    how.add_argument("--full", action="store_true", help="read and hash every byte")
    how.add_argument("--repair", action="store_true", help="the same, and fetch what is wrong")
    _add_weights(add)
    add("status", "what runs, and how the last run ended")
    logs = add("logs", "what the services say", json=False)
    logs.add_argument("services", nargs="*", type=_service, metavar="SERVICE")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as they say more")
    logs.add_argument("--tail", metavar="N", help="only the last N lines of each")
    down = add("down", "stop and remove the stack; weights and chats stay", json=False)
    down.add_argument("--volumes", action="store_true", help="remove accounts and chats too")
    secrets = add("secrets", "keys and passwords", json=False)
    secrets.add_argument("verb", choices=["show"], help="print them, on a terminal only")
    key_options.add(parsers, lambda command: _add_settings(command, shown=False), ALL_SETTINGS)
    add("version", "the version of this program")
    return parser


def _service(name: str) -> str:
    if name not in SERVICES:
        message = f"there is no service {name!r}: {', '.join(SERVICES)}"
        raise argparse.ArgumentTypeError(message)
    return name


def _add_force(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--force",
        action="append",
        default=[],
        metavar="CHECK",
        help="go on although this check refuses, as `doctor` names it; may be given again",
    )


def _add_facts(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--facts",
        type=Path,
        metavar="FILE|FOLDER",
        help="judge the host whose facts these are: `doctor --save-facts`, or a folder of its "
        "lscpu.txt, free.txt, nvidia-smi.txt, numactl.txt and df.txt",
    )


def _add_doctor(doctor: argparse.ArgumentParser) -> None:
    _add_facts(doctor)
    doctor.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="CHECK",
        help="only this check; may be given more than once",
    )
    doctor.add_argument(
        "--save-facts",
        type=Path,
        metavar="FILE",
        help="write what this host is to a file: for --facts on another host",
    )


def _add_pull(pull: argparse.ArgumentParser) -> None:
    _add_force(pull)
    pull.add_argument("--detach", action="store_true", help="do not wait for the download's end")
    pull.add_argument(
        "--stop", action="store_true", help="stop the running download, keep its parts"
    )
    pull.add_argument(
        "--update-lock",
        action="store_true",
        help="make a new lock of what the sources publish today, and show what it changes",
    )
    pull.add_argument(
        "--progress",
        choices=["text", "json"],
        default="text",
        help="json: one event a line on standard output",
    )


def _add_weights(add: Callable[..., argparse.ArgumentParser]) -> None:
    weights = add("weights", "what the weights folder holds")
    weights.add_argument("verb", choices=["list", "remove", "clean"])
    weights.add_argument("name", nargs="?", help="what to remove, as `weights list` calls it")
    weights.add_argument("--yes", action="store_true", help="do remove it")


def _add_settings(command: argparse.ArgumentParser, *, shown: bool) -> None:
    group = command.add_argument_group("settings")
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f" (default: {field.default})"
        group.add_argument(
            f"--{name.replace('_', '-')}",
            metavar="VALUE",
            help=f"{field.description}{default}".replace("%", "%%") if shown else argparse.SUPPRESS,
        )

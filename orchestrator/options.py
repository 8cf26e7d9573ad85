"""How every command is typed."""

import argparse
from collections.abc import Callable
from pathlib import Path

from orchestrator import key_options
from orchestrator.commands import SERVICES
from orchestrator.core.settings import Settings
from orchestrator.parsing import PROGRAM, Parser, table

ALL_SETTINGS = f"Every setting is a flag here too: see `{PROGRAM} up --help`."
TEXTS = {
    "up": "bring the stack up, step by step, each proven",
    "plan": "show what `up` would do and whether it fits, and change nothing",
    "recommend": "which profile suits this host, and why no other one is taken",
    "doctor": "check this host, and say how to mend what is wrong with it",
    "profiles": "the catalogue of models, and your own in configs/profiles.d",
    "pull": "fetch and prove the weights; the download outlives this terminal",
    "verify": "are the weights what their lock says?",
    "weights": "what the weights folder holds",
    "status": "what runs, and how the last run ended",
    "logs": "what the services say",
    "down": "stop and remove the stack; weights and chats stay",
    "secrets": "keys and passwords",
    "key": key_options.TEXT,
    "version": "the version of this program",
}


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} COMMAND [OPTION ...]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Bring a private chat service up, prove that it serves, take it down.\n\n"
        + "\n".join(table(TEXTS)),
        epilog="Settings: flag, ORCH_NAME, appliance.toml, profile, default; in that order.\n"
        f"All of them, and all options of a command: {PROGRAM} up --help",
    )
    parsers = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog=PROGRAM
    )

    def add(name: str, *, json: bool = True) -> argparse.ArgumentParser:
        shown, text = name in {"up", "plan"}, TEXTS[name]
        command = parsers.add_parser(name, description=text, epilog=None if shown else ALL_SETTINGS)
        command.add_argument("-v", "--verbose", action="store_true", help="say more")
        if json:
            command.add_argument("--json", action="store_true", help="for programs")
        _add_settings(command, shown=shown)
        return command

    up = add("up")
    up.add_argument("--dry-run", action="store_true", help="only show the plan")
    _add_force(up)
    plan = add("plan")
    _add_force(plan)
    _add_facts(plan)
    _add_facts(add("recommend"))
    _add_doctor(add("doctor"))
    profiles = add("profiles")
    profiles.add_argument(
        "verb",
        choices=["list", "show", "validate"],
        help="list: all of them, with what they need. show NAME: one, each figure with its source. "
        "validate [NAME|FILE ...]: all mistakes in these, or in all, with their lines",
    )
    profiles.add_argument(
        "names", nargs="*", metavar="NAME", help="of show one; of validate also files"
    )
    _add_pull(add("pull"))
    verify = add("verify")
    how = verify.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="compare sizes and times (the default)")
    how.add_argument("--full", action="store_true", help="read and hash every byte")
    how.add_argument("--repair", action="store_true", help="the same, and fetch what is wrong")
    _add_weights(add)
    add("status")
    logs = add("logs", json=False)
    logs.add_argument("services", nargs="*", type=_service, metavar="SERVICE")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as they say more")
    logs.add_argument("--tail", type=_lines, metavar="N", help="only the last N lines of each")
    down = add("down", json=False)
    down.add_argument("--volumes", action="store_true", help="remove accounts and chats too")
    secrets = add("secrets", json=False)
    secrets.add_argument("verb", choices=["show"], help="print them, on a terminal only")
    key_options.add(parsers, lambda command: _add_settings(command, shown=False), ALL_SETTINGS)
    add("version")
    return parser


def _service(name: str) -> str:
    if name not in SERVICES:
        message = f"there is no service {name!r}: {', '.join(SERVICES)}"
        raise argparse.ArgumentTypeError(message)
    return name


def _lines(count: str) -> str:
    if not count.isdecimal():
        message = f"{count!r} is no number of lines"
        raise argparse.ArgumentTypeError(message)
    return count


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
    weights = add("weights")
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

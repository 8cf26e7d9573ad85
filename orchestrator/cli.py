"""Arguments in, exit code out."""

import argparse
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from orchestrator import commands
from orchestrator.commands import SERVICES, Typed
from orchestrator.console import Console
from orchestrator.core.errors import INTERRUPTED_EXIT_CODE, ActionFailed, OrchestratorError
from orchestrator.core.settings import Settings

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    typed = Typed(
        root=ROOT,
        flags={name: getattr(arguments, name, None) for name in Settings.model_fields},
        as_json=getattr(arguments, "json", False),
        verbose=arguments.verbose,
    )
    if typed.verbose:
        logging.basicConfig(format="%(message)s", stream=sys.stderr)
        logging.getLogger("orchestrator").setLevel(logging.DEBUG)
    signal.signal(signal.SIGTERM, _as_interrupt)
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
    except KeyboardInterrupt:
        Console().note("Interrupted. Nothing is lost: the same command goes on from here.")
        return INTERRUPTED_EXIT_CODE


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _command(arguments: argparse.Namespace) -> Callable[[Typed], int]:
    return {
        "up": commands.plan if getattr(arguments, "dry_run", False) else commands.up,
        "plan": commands.plan,
        "status": commands.status,
        "logs": lambda typed: commands.logs(
            typed, arguments.services, follow=arguments.follow, tail=arguments.tail
        ),
        "down": lambda typed: commands.down(typed, volumes=arguments.volumes),
        "secrets": commands.show_secrets,
        "version": commands.version,
    }[arguments.command]


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m orchestrator",
        description="Bring a private chat service up, prove that it serves, take it down.",
        epilog="Settings: flag, ORCH_NAME variable, appliance.toml, profile, default; in that order.",
    )
    parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str, *, json: bool = True) -> argparse.ArgumentParser:
        command = parsers.add_parser(name, help=text, description=text)
        command.add_argument("-v", "--verbose", action="store_true", help="say more")
        if json:
            command.add_argument("--json", action="store_true", help="for programs")
        _add_settings(command)
        return command

    up = add("up", "bring the stack up, step by step, each proven")
    up.add_argument("--dry-run", action="store_true", help="only show the plan")
    add("plan", "show what `up` would do, and change nothing")
    add("status", "what runs, and how the last run ended")
    logs = add("logs", "what the services say", json=False)
    logs.add_argument("services", nargs="*", choices=[[], *SERVICES], metavar="SERVICE")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as they say more")
    logs.add_argument("--tail", metavar="N", help="only the last N lines of each")
    down = add("down", "stop and remove the stack; weights and chats stay", json=False)
    down.add_argument("--volumes", action="store_true", help="remove accounts and chats too")
    secrets = add("secrets", "keys and passwords", json=False)
    secrets.add_argument("verb", choices=["show"], help="print them, on a terminal only")
    add("version", "the version of this program")
    return parser


def _add_settings(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("settings")
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f" (default: {field.default})"
        group.add_argument(
            f"--{name.replace('_', '-')}",
            metavar="VALUE",
            help=f"{field.description}{default}".replace("%", "%%"),
        )

"""Arguments in, exit code out."""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from orchestrator import advising, catalogue, commands, key_options, pulling, reporting
from orchestrator.commands import Typed
from orchestrator.console import Console
from orchestrator.core.errors import (
    INTERRUPTED_EXIT_CODE,
    ActionFailed,
    BadConfiguration,
    OrchestratorError,
)
from orchestrator.core.settings import Settings
from orchestrator.options import TEXTS, build_parser
from orchestrator.parsing import (
    PROGRAM,
    first_steps,
    refuse_misplaced_option,
    refuse_unknown,
)
from orchestrator.prepare import Need

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    if not words:
        Console().note(first_steps(TEXTS))
        return BadConfiguration.exit_code
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        with _every_failure_in_words(words[0]):
            arguments = _read(words)
            return _command(arguments)(_typed(arguments))
    except OrchestratorError as error:
        Console().explain(error)
        return error.exit_code
    except BrokenPipeError:  # `logs | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        Console().note("Interrupted. Nothing is lost: the same command goes on from here.")
        return INTERRUPTED_EXIT_CODE


@contextmanager
def _every_failure_in_words(command: str) -> Iterator[None]:
    try:
        yield
    except ActionFailed as failure:
        raise OrchestratorError(
            f"{command} did not work",
            why=failure.reason,
            next_step="python3 -m orchestrator status",
        ) from failure
    except BrokenPipeError:
        raise
    except OSError as error:  # what no adapter foresaw
        raise BadConfiguration(
            "a file or a folder can't be used",
            why=str(error),
            next_step="run as the user who installed, and see that the disk is neither full nor "
            "read-only: df -h",
        ) from error


def _read(words: Sequence[str]) -> argparse.Namespace:
    refuse_misplaced_option(words[0])
    arguments, unknown = build_parser().parse_known_args(words)
    refuse_unknown(unknown, arguments.command)
    _refuse_names(arguments)
    return arguments


def _typed(arguments: argparse.Namespace) -> Typed:
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
    return typed


def _refuse_names(arguments: argparse.Namespace) -> None:
    """Of the words after a verb, what argparse can't say: how many there are hangs on the verb."""
    verb = getattr(arguments, "verb", "")
    if arguments.command == "profiles" and verb != "validate":
        wanted, given = int(verb == "show"), len(arguments.names)
    elif arguments.command == "weights":
        wanted, given = int(verb == "remove"), int(bool(arguments.name))
    else:
        return
    if wanted != given:
        takes = "one name" if wanted else "no name"
        raise BadConfiguration(
            "the command line can't be used",
            why=f"{arguments.command} {verb} takes {takes}",
            next_step=f"{PROGRAM} {arguments.command} list",
        )


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

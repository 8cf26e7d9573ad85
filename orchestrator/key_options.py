"""How the commands about keys are typed."""

import argparse
from collections.abc import Callable

from orchestrator import keying
from orchestrator.commands import Typed
from orchestrator.core.key_words import LIMIT_WORDS
from orchestrator.parsing import Parser

TEXT = "keys of the API: make, list, limit and revoke them at any time"


def add(
    parsers: "argparse._SubParsersAction[Parser]",
    add_settings: Callable[[argparse.ArgumentParser], None],
    epilog: str,
) -> None:
    key = parsers.add_parser("key", description=TEXT)
    verbs = key.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        command = verbs.add_parser(name, help=text, description=text, epilog=epilog)
        command.add_argument("-v", "--verbose", action="store_true", help="say more")
        command.add_argument("--json", action="store_true", help="for programs")
        add_settings(command)
        return command

    create = verb("create", "make a key, shown this once")
    create.add_argument("name", help="for whom or what it is")
    _add_limits(create)
    verb("list", "every key, its limits, and what it used")
    revoke = verb("revoke", "take a key back, at once")
    revoke.add_argument("key", help="its id or its name")
    limit = verb("limit", "change what a key may use; `none` takes a limit away")
    limit.add_argument("key", help="its id or its name")
    _add_limits(limit)


def _add_limits(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--class",
        dest="key_class",
        choices=["interactive", "batch"],
        help="batch is served when nothing interactive waits",
    )
    for flag, name, text in (
        ("--running", "running", "requests at once"),
        ("--queued", "queued", "requests that may wait"),
        ("--rpm", "requests_per_minute", "requests a minute"),
        ("--tpm", "tokens_per_minute", "tokens a minute, as in 20k"),
        ("--tpd", "tokens_per_day", "tokens a day, which begins at 00:00 UTC"),
    ):
        command.add_argument(flag, dest=name, metavar="N", help=text)
    command.add_argument("--expires", metavar="WHEN", help="as in 12h, 30d, 2027-01-31, or never")


def run(typed: Typed, arguments: argparse.Namespace) -> int:
    if arguments.verb == "list":
        return keying.list_keys(typed)
    if arguments.verb == "revoke":
        return keying.revoke(typed, arguments.key)
    limits = {name: text for name in LIMIT_WORDS if (text := getattr(arguments, name)) is not None}
    if arguments.verb == "create":
        return keying.create(
            typed,
            arguments.name,
            key_class=arguments.key_class or "interactive",
            limits=limits,
            expires=arguments.expires,
        )
    return keying.limit(
        typed,
        arguments.key,
        key_class=arguments.key_class,
        limits=limits,
        expires=arguments.expires,
    )

"""`python3 -m downloader [fetch | verify | clean]`: one run, its words, and its exit code."""

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType

from downloader import alive
from downloader.errors import Failure
from downloader.publish import Means, publish
from downloader.settings import Settings, read_order, read_settings
from downloader.stale import remove_stale
from downloader.verify import verify_full, verify_quick
from downloader.world import World
from wire.order import Order

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """A signal asked the job to end: raised wherever it is, so that every `finally` runs."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    asked = _parser().parse_args(arguments)
    try:
        for number in SIGNALS:
            signal.signal(number, _stop)
        alive.touch()
        settings = read_settings(environment)
        order = read_order(settings.order_file)
        _carry_out(asked, order, settings)
    except Failure as failure:
        for line in failure.lines():
            sys.stderr.write(f"{line}\n")
        return failure.exit_code
    except Stopped as stopped:
        name = signal.Signals(stopped.number).name
        sys.stderr.write(f"stopped by {name}: what has arrived is kept, run again to go on\n")
        return 128 + stopped.number
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="downloader", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser(
        "fetch", help="fetch, prove, write the receipt (what happens without a command)"
    )
    verify = commands.add_parser("verify", help="is what the receipt vouches for still there?")
    depth = verify.add_mutually_exclusive_group()
    depth.add_argument("--quick", action="store_true", help="sizes, times, inodes (the default)")
    depth.add_argument("--full", action="store_true", help="hash every byte")
    verify.add_argument("--repair", action="store_true", help="hash every byte, fetch what differs")
    commands.add_parser("clean", help="remove unfinished files of other orders")
    return parser


def _carry_out(asked: argparse.Namespace, order: Order, settings: Settings) -> None:
    world = World(
        monotonic=time.monotonic,
        wall=time.time,
        random=random.random,
        sleep=time.sleep,
        say=_say,
        beat=alive.touch,
    )
    means = Means(
        weights_dir=settings.weights_dir,
        source_dir=settings.source_dir,
        token=settings.token(),
        ca_bundle=settings.certificates(),
    )
    match asked.command:
        case "verify" if asked.full or asked.repair:
            verify_full(order, means, world, repair=asked.repair)
        case "verify":
            verify_quick(order, means, world)
        case "clean":
            for line in remove_stale(settings.weights_dir, order.lock):
                _say(line)
        case _:
            publish(order, means, world)


def _stop(number: int, _frame: FrameType | None) -> None:
    # The first signal is enough; a second one must not interrupt the cleaning up.
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(number)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))

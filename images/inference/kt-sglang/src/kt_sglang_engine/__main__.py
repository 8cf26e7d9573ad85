"""`python3 -m kt_sglang_engine ARGUMENT...`: proves the weights, then starts sglang's server on them.

Exit codes as in `refusals`.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from kt_sglang_engine import arguments, memory
from kt_sglang_engine.environment import server_environment
from kt_sglang_engine.gpu import Driver, load_driver, refuse_unfit_gpus
from kt_sglang_engine.refusals import Refused, Verdict
from kt_sglang_engine.settings import (
    check_cache,
    proven_folder,
    read_key,
    read_lock,
    read_settings,
)
from kt_sglang_engine.stage import Stage
from kt_sglang_engine.supervise import hold_signals, supervise
from wire.telling import tell

SERVER = (sys.executable, "-m", "kt_sglang_engine.server")


def main(
    environment: Mapping[str, str],
    argv: Sequence[str],
    driver: Driver | None,
    server: Sequence[str] = SERVER,
) -> int:
    hold_signals()
    try:
        settings = read_settings(environment)
        _refuse(arguments.problems(argv))
        lock = read_lock(settings)
        read_key(settings.api_key_file)
        check_cache(settings.cache_dir)
        memory.check(settings)
        folder = proven_folder(settings, lock)
        refuse_unfit_gpus(driver, arguments.cards(argv))
    except Refused as refusal:
        tell(*refusal.verdict.lines())
        return refusal.verdict.exit_code
    memory.place(settings, tell)
    return supervise(
        (*server, *arguments.absolute(argv, folder)),
        server_environment(environment, settings.cache_dir),
        settings.state_file,
        Stage(total_bytes=sum(file.size_bytes for file in lock.files)),
    )


def _refuse(problems: tuple[str, ...]) -> None:
    if problems:
        raise Refused(
            Verdict(
                what="the engine's arguments can't be used",
                why=problems,
                next_step="python3 -m orchestrator plan (it shows the command line and why)",
            )
        )


if __name__ == "__main__":
    sys.exit(main(os.environ, sys.argv[1:], load_driver()))

"""`python3 -m llamacpp_engine`: proves the weights, then runs the engine on them.

Exit codes: 0 told to stop, 1 or above 128 the engine failed, 2 configuration, 3 no GPU that it can
use, 6 weights not proven.
"""

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from llamacpp_engine import launch, server
from llamacpp_engine.memory import check_memory, place, with_warm_weights
from llamacpp_engine.settings import (
    ConfigurationInvalid,
    read_chat_template,
    read_key,
    read_lock,
    read_settings,
)
from llamacpp_engine.supervise import hold_signals, listens, supervise
from wire import Discrepancy, discrepancies, read_receipt, stat_files

LOOK_EVERY_S = 5.0


def main(environment: Mapping[str, str]) -> int:
    hold_signals()
    try:
        settings = read_settings(environment)
        check_memory(settings)
        lock = read_lock(settings)
        key = read_key(settings)
    except ConfigurationInvalid as error:
        _explain(error.what, error.why, error.next_step)
        return error.exit_code
    folder = settings.weights_dir / lock.folder
    if doubts := tuple(discrepancies(lock, read_receipt(folder), stat_files(folder, lock))):
        _refuse(folder, doubts)
        return 6
    model = folder / settings.model_file
    try:
        chat_template = read_chat_template(settings, model)
        if settings.llama_server is not None:
            server.refuse_missing_cards(settings.llama_server, settings.cuda_visible_devices)
    except ConfigurationInvalid as error:
        _explain(error.what, error.why, error.next_step)
        return error.exit_code
    engine = partial(launch.serve, settings, model, key, chat_template)
    if settings.llama_server is not None:
        engine = partial(server.serve, settings.llama_server, settings, model, chat_template)
    if place(settings):
        files = [folder / file.path for file in lock.files]
        engine = partial(with_warm_weights, settings, files, engine)
    return supervise(
        engine,
        partial(listens, settings.listen_port),
        look_every_s=LOOK_EVERY_S,
    )


def _refuse(folder: Path, doubts: tuple[Discrepancy, ...]) -> None:
    _explain(
        f"the engine does not start: the weights in {folder} are not proven",
        tuple(str(doubt) for doubt in doubts),
        "python3 -m orchestrator up (it verifies the weights and writes the receipt)",
    )


def _explain(what: str, why: tuple[str, ...], next_step: str) -> None:
    lines = [f"error: {what}", *(f"why: {reason}" for reason in why), f"next: {next_step}"]
    sys.stderr.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main(os.environ))

"""`python3 -m kt_legacy_engine.worker FD`: the process that has the model, started by the other one.

Exit codes as in `refusals`.
"""

import sys
from multiprocessing.connection import Connection

from kt_legacy_engine.memory import warm_weights
from kt_legacy_engine.pipe import Ready, Server
from kt_legacy_engine.refusals import Refused
from wire.telling import tell


def main(fd: int) -> int:
    server = Server(Connection(fd))
    spec = server.ordered()
    try:
        from kt_legacy_engine.gpu import refuse_unfit_gpus  # noqa: PLC0415

        refuse_unfit_gpus(spec.rules)
        warm_weights(spec, tell)
        # Only now: importing the engine already needs a driver.
        from kt_legacy_engine.engine import load  # noqa: PLC0415

        model, about = load(spec, server.tell)
    except Refused as refusal:
        tell(*refusal.lines().splitlines())
        return refusal.exit_code
    server.serve(
        model, Ready(capacity=model.capacity, vocabulary=model.vocabulary, about=tuple(about))
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

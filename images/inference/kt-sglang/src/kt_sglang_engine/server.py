"""`python3 -m kt_sglang_engine.server ARGUMENT...`: sglang's server, with its key and few of its doors.

The launcher's child. The key is read here, from its file, so that it stands on no command line.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kt_sglang_engine.hidden import Hidden
from kt_sglang_engine.settings import read_key

# What the gateway asks for, and sglang's own first request to itself. Among those left out are some
# that replace the weights, stop the engine or tell its arguments.
KEPT = frozenset(
    {
        "/health",
        "/model_info",
        "/generate",
        "/abort_request",
        "/v1/models",
        "/v1/models/{model:path}",
        "/v1/completions",
        "/v1/chat/completions",
    }
)


def main(arguments: Sequence[str], key_file: Path) -> None:
    # The launcher holds them back for itself, and a child starts with what its parent held.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    from sglang.launch_server import run_server  # noqa: PLC0415 - the launcher does not import it
    from sglang.srt.server_args import prepare_server_args  # noqa: PLC0415
    from sglang.srt.utils import kill_process_tree  # noqa: PLC0415

    server_args = prepare_server_args(list(arguments))
    server_args.api_key = Hidden(read_key(key_file))
    # Not before: arguments set variables that it reads while it is imported.
    from sglang.srt.entrypoints import http_server  # noqa: PLC0415

    keep_few_routes(http_server.app)
    try:
        run_server(server_args)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


def keep_few_routes(app: Any) -> None:
    """Metrics are added later, and stay."""
    app.router.routes[:] = [
        route for route in app.router.routes if getattr(route, "path", "") in KEPT
    ]


if __name__ == "__main__":
    main(sys.argv[1:], Path(os.environ["API_KEY_FILE"]))

"""`python -m hub ROOT PORT`: the hub as a process of its own, until a signal."""

import argparse
import signal
from pathlib import Path

from hub.server import Hub


def main() -> int:
    parser = argparse.ArgumentParser(prog="hub")
    parser.add_argument("root", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--cdn-port", type=int, default=0)
    parser.add_argument("--page", type=int, default=1000)
    parser.add_argument("--ttl", type=float, default=3600)
    parser.add_argument("--gated", action="append", default=[], metavar="REPO")
    parser.add_argument("--token", action="append", default=[], metavar="TOKEN=REPO,REPO")
    parser.add_argument("--no-redirects", action="store_true")
    arguments = parser.parse_args()
    stop = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    with Hub(
        arguments.root,
        host=arguments.host,
        port=arguments.port,
        cdn_port=arguments.cdn_port,
        page=arguments.page,
        ttl_s=arguments.ttl,
        gated=arguments.gated,
        tokens={
            token: frozenset(filter(None, repos.split(",")))
            for token, _, repos in (given.partition("=") for given in arguments.token)
        },
        redirects=not arguments.no_redirects,
    ) as hub:
        print(f"hub on http://{arguments.host}:{hub.port}", flush=True)
        signal.sigwait(stop)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

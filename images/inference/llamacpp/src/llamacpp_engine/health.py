"""The container's healthcheck: exit code 0 when /health answers 200, so when the model is loaded.

While it loads it prints how far it is, which Docker keeps: so the host sees it, and no port of the
engine is open to it.

Standard library only: it starts every few seconds and must cost little.
"""

import http.client
import json
import os
import sys
from http import HTTPStatus

from llamacpp_engine import DEFAULT_PORT
from llamacpp_engine.loading import progress


def main() -> int:
    port = int(os.environ.get("LISTEN_PORT", DEFAULT_PORT))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=4)
    try:
        connection.request("GET", "/health")
        status = connection.getresponse().status
    except ConnectionRefusedError as error:
        _tell_loading(f"/health: {error}")
        return 1
    except (OSError, http.client.HTTPException) as error:
        # Busy is not dead, and not loading either.
        sys.stderr.write(f"/health: {error}\n")
        return 1
    finally:
        connection.close()
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        _tell_loading(f"/health: {status}")
    else:
        sys.stderr.write(f"/health: {status}\n")
    return 0 if status == HTTPStatus.OK else 1


def _tell_loading(otherwise: str) -> None:
    """Its own line alone: what Docker keeps must be JSON and nothing else."""
    told = progress(os.environ)
    if told is None:
        sys.stderr.write(f"{otherwise}\n")
    else:
        sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    sys.exit(main())

"""The container's healthcheck: exit code 0 when /health answers 200, so when the model is loaded.

It prints how far the engine is, which Docker keeps: so the host sees it, and no port of the engine
is open to it. Sglang opens its own only after the load; until then the launcher's file says it.

Standard library only: it starts every few seconds and must cost little.
"""

import http.client
import os
import sys
from http import HTTPStatus
from pathlib import Path

from kt_sglang_engine import DEFAULT_PORT, DEFAULT_STATE_FILE


def main() -> int:
    port = int(os.environ.get("LISTEN_PORT", DEFAULT_PORT))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=4)
    said = ""
    try:
        connection.request("GET", "/health")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        status, said = 0, f"/health: {error}"
    finally:
        connection.close()
    if status == HTTPStatus.OK:
        sys.stdout.write('{"status": "ok"}\n')
        return 0
    try:
        said = Path(os.environ.get("STATE_FILE", DEFAULT_STATE_FILE)).read_text(encoding="utf-8")
    except OSError:
        said = said or f"/health: {status}"
    sys.stdout.write(f"{said}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

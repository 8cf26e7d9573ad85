"""The container's healthcheck: exit code 0 when /health answers 200, so when the model is loaded.

It prints what /health says, which Docker keeps: so the host sees how far a load is, and no port of
the engine is open to it. Docker keeps 4096 bytes.

Standard library only: it starts every few seconds and must cost little.
"""

import http.client
import os
import sys
from http import HTTPStatus

from kt_legacy_engine import DEFAULT_PORT


def main() -> int:
    port = int(os.environ.get("LISTEN_PORT", DEFAULT_PORT))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=4)
    try:
        connection.request("GET", "/health")
        response = connection.getresponse()
        status, said = response.status, response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"/health: {error}\n")
        return 1
    finally:
        connection.close()
    sys.stdout.write(f"{said}\n")
    return 0 if status == HTTPStatus.OK else 1


if __name__ == "__main__":
    sys.exit(main())

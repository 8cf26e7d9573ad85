"""The container's healthcheck: exit code 0 when this gateway's /healthz answers 200.

Standard library only: it starts every few seconds and must cost little.
"""

import http.client
import os
import sys

from gateway import DEFAULT_PORT


def main() -> int:
    port = int(os.environ.get("LISTEN_PORT", DEFAULT_PORT))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
    try:
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"/healthz: {error}\n")
        return 1
    finally:
        connection.close()
    sys.stderr.write(f"/healthz: {status}\n")
    return 0 if status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main())

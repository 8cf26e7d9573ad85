"""The health check: 0 when Prometheus says that it serves."""

import http.client
import sys

PORT = 9090


def is_ready(port: int) -> bool:
    # Not urllib: it would ask a proxy that Docker's client settings put into every container.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=4)
    try:
        connection.request("GET", "/-/ready")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if is_ready(PORT) else 1)

"""The running gateway's own ear, in the folder that only it and this host share."""

import json
import os
import socket
from pathlib import Path

SOCKET = "control.sock"

_WITHIN_S = 3.0


def have_files_read(control: Path) -> int | None:
    """Has the gateway read its keys and policy now: it does so by itself, but not at once.

    Returns how many requests that ended, or None where no gateway answers, or one that does not say.
    """
    try:
        folder = os.open(control, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        with socket.socket(socket.AF_UNIX) as gateway:
            gateway.settimeout(_WITHIN_S)
            # A socket's own path has room for a hundred characters only.
            gateway.connect(f"/proc/self/fd/{folder}/{SOCKET}")
            gateway.sendall(b'{"do":"reload"}\n')
            with gateway.makefile("rb") as said:
                ended = json.loads(said.readline()).get("ended")
    except (OSError, ValueError, AttributeError):
        return None
    finally:
        os.close(folder)
    return ended if isinstance(ended, int) else None

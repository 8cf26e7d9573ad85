"""Ports for servers of a test's own."""

import socket


def free_port() -> int:
    """Free on the loopback, a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])

"""When the container counts as healthy."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from prometheus_health.__main__ import is_ready


class Answers(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/-/ready" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name there


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Answers) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield listening
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_what_it_says_of_itself_counts(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch, status: int, healthy: bool
) -> None:
    monkeypatch.setattr(Answers, "status", status)
    assert is_ready(server.server_port) is healthy


def test_nobody_there_is_not_healthy(server: HTTPServer) -> None:
    server.server_close()
    assert not is_ready(server.server_port)

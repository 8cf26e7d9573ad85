"""The health check, asked of a small server that stands in for Open-WebUI."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from webui_launcher.health import is_ready


@contextmanager
def open_webui_answering(status: int) -> Iterator[int]:
    class Ready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/ready" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_ready_is_healthy() -> None:
    with open_webui_answering(200) as port:
        assert is_ready(port)


def test_starting_is_not_healthy() -> None:
    with open_webui_answering(503) as port:
        assert not is_ready(port)


def test_nobody_listening_is_not_healthy() -> None:
    with open_webui_answering(200) as port:
        pass
    assert not is_ready(port)


def test_a_proxy_in_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with open_webui_answering(200) as port:
        assert is_ready(port)

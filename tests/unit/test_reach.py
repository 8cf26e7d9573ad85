"""Which services are reached: real HTTP on this machine, with the wrong answers that proxies give."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orchestrator.adapters import reach
from orchestrator.adapters.reach import read_reach
from orchestrator.core.facts import Reach


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@contextmanager
def a_server(
    status: int,
    *,
    date: str | None = None,
    age: str | None = None,
    let_go: threading.Event | None = None,
) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if let_go:
                let_go.wait()
            self.send_response_only(status)
            if date:
                self.send_header("Date", date)
            if age:
                self.send_header("Age", age)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        if let_go:
            let_go.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "reached"),
    [(200, True), (401, True), (404, True), (302, True), (403, False), (407, False), (502, False)],
)
def test_any_answer_of_the_service_counts_and_a_proxys_refusal_does_not(
    status: int, reached: bool
) -> None:
    with a_server(status) as url:
        assert read_reach({"image_registry": url}) == Reach(image_registry=reached)


def test_what_nobody_asked_about_is_unknown_and_a_closed_port_is_not_reached() -> None:
    with a_server(200) as url:
        pass
    assert read_reach({"huggingface": url}) == Reach(huggingface=False)
    assert read_reach({}) == Reach()


def test_the_clock_is_compared_with_the_servers_date_but_not_with_a_caches() -> None:
    hour_ago = formatdate(time.time() - 3600, usegmt=True)
    with a_server(200, date=hour_ago) as url, a_server(200, date=hour_ago, age="3600") as cache:
        ahead = read_reach({"huggingface": url}).clock_ahead_s
        assert ahead == pytest.approx(3600, abs=60)
        assert read_reach({"huggingface": cache}).clock_ahead_s is None
    with a_server(200, date="yesterday") as url:
        assert read_reach({"huggingface": url}) == Reach(huggingface=True)


def test_an_answer_that_comes_too_late_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def late(name: str, *_: object) -> reach._Answer:
        released.wait(30)
        return reach._Answer(name, reached=True)

    monkeypatch.setattr(reach, "WITHIN_S", 0.1)
    monkeypatch.setattr(reach, "_ask", late)
    found = read_reach({"huggingface": "http://a.invalid"})
    released.set()
    assert found == Reach(huggingface=False)


def test_a_service_that_stays_silent_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "WITHIN_S", 0.5)
    silent = threading.Event()
    with a_server(200, let_go=silent) as mute, a_server(200) as url:
        found = read_reach({"huggingface": mute, "modelscope": url})
    assert (found.huggingface, found.modelscope) == (False, True)


def test_the_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_server(200) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy)
        assert read_reach({"python_index": "http://index.invalid/simple/"}).python_index is True
    monkeypatch.delenv("HTTP_PROXY")
    assert read_reach({"python_index": "http://index.invalid/simple/"}).python_index is False


def test_an_address_that_is_none_is_not_reached() -> None:
    assert read_reach({"modelscope": "no address"}) == Reach(modelscope=False)

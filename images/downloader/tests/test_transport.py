"""Behind a proxy, and behind certificates of one's own."""

import re
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from downloader.errors import NotDelivered
from downloader.publish import Means, publish
from downloader.ranged import Address, Range, open_range
from downloader.sources.base import Fault
from downloader.sources.web import plain_refusal
from downloader.transport import Transport
from hub import Hub, Stall
from images.downloader.tests.support import TINY, a_world
from wire import Lock, discrepancies, read_receipt, stat_files
from wire.order import HttpFolder, Order


class Server(ThreadingHTTPServer):
    """Gives ranges of the files of a folder, whatever host an absolute address names: a proxy too."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.folder = folder
        self.asked: list[tuple[str, str | None]] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that does not trust us hangs up."""


class Answers(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Proxy-Authorization")))
        path = re.sub(r"^http://[^/]+", "", self.path).removeprefix("/files/")
        content = (self.server.folder / path).read_bytes()
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"])
        assert match is not None
        start, end = int(match[1]), int(match[2])
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{end}/{len(content)}")
        self.send_header("Content-Length", str(end + 1 - start))
        self.end_headers()
        self.wfile.write(content[start : end + 1])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the library's name
        pass


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def plain(source_dir: Path) -> Iterator[Server]:
    with serving(Server(source_dir)) as server:
        yield server


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Signed by itself, for localhost; key and certificate in one file."""
    made = tmp_path / "certificate.pem"
    key = tmp_path / "key.pem"
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
        *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(made)),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return made


@pytest.fixture
def secure(source_dir: Path, certificate: Path) -> Iterator[Server]:
    server = Server(source_dir)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    with serving(server):
        yield server


def fetch(order: Order, means: Means) -> Path:
    publish(order, means, a_world(monotonic=time.monotonic))
    return means.weights_dir / order.lock.folder


def is_proven(lock: Lock, folder: Path) -> bool:
    return not list(discrepancies(lock, read_receipt(folder), stat_files(folder, lock)))


def test_a_proxy_is_used_and_told_its_password(
    plain: Server, lock: Lock, weights_dir: Path
) -> None:
    order = Order(
        lock=lock,
        sources=(HttpFolder(url="http://weights.invalid/files"),),
        tuning=TINY,
        proxies={"http": f"http://user:p%40ss@127.0.0.1:{plain.server_port}"},
    )

    folder = fetch(order, Means(weights_dir=weights_dir))

    assert is_proven(lock, folder)
    # RFC 7617: base64 of "user:p@ss".
    assert ("http://weights.invalid/files/Q4/one.bin", "Basic dXNlcjpwQHNz") in plain.asked


def test_a_host_that_needs_no_proxy_is_asked_itself(
    plain: Server, lock: Lock, weights_dir: Path
) -> None:
    order = Order(
        lock=lock,
        sources=(HttpFolder(url=f"http://127.0.0.1:{plain.server_port}/files"),),
        tuning=TINY,
        proxies={"http": "http://127.0.0.1:9", "no": "localhost,127.0.0.1"},
    )

    folder = fetch(order, Means(weights_dir=weights_dir))

    assert is_proven(lock, folder)
    assert {proxy_login for _, proxy_login in plain.asked} == {None}


def test_a_certificate_of_the_hosts_own_bundle_is_trusted(
    secure: Server, certificate: Path, lock: Lock, weights_dir: Path
) -> None:
    source = HttpFolder(url=f"https://localhost:{secure.server_port}/files")
    order = Order(lock=lock, sources=(source,), tuning=TINY)

    folder = fetch(order, Means(weights_dir=weights_dir, ca_bundle=certificate))

    assert is_proven(lock, folder)


def test_a_certificate_of_nobody_ends_with_5_and_the_way_to_trust_it(
    secure: Server, lock: Lock, weights_dir: Path
) -> None:
    source = HttpFolder(url=f"https://localhost:{secure.server_port}/files")
    order = Order(lock=lock, sources=(source,), tuning=TINY)

    with pytest.raises(NotDelivered) as refusal:
        fetch(order, Means(weights_dir=weights_dir))

    assert "self-signed certificate" in refusal.value.why[0]
    assert "trust store" in refusal.value.next_step
    assert secure.asked == []


def test_a_reader_that_waits_for_a_silent_server_is_woken(tmp_path: Path) -> None:
    model = tmp_path / "hub" / "owner" / "model"
    model.mkdir(parents=True)
    (model / "big.bin").write_bytes(bytes(1000))
    transport = Transport(
        proxies={}, ca_bundle=None, streams=1, connect_timeout_s=5, idle_timeout_s=600
    )
    faults: list[Fault] = []

    def read(url: str) -> None:
        address = Address(url=url, explain=plain_refusal)
        try:
            with open_range(transport, address, Range(start=0, stop=1000)) as reader:
                buffer = memoryview(bytearray(1000))
                while True:
                    reader.readinto(buffer)
        except Fault as fault:
            faults.append(fault)

    with Hub(tmp_path / "hub") as hub:
        hub.arm(Stall(at=500))
        url = f"{hub.folder('owner/model').url}/big.bin"
        waiting = threading.Thread(target=read, args=(url,), daemon=True)
        waiting.start()
        hub.wait(lambda seen: sum(each.sent for each in seen) >= 500)

        transport.cut_all()
        waiting.join(10)
        woken = not waiting.is_alive()
        transport.close()

    assert woken
    assert len(faults) == 1

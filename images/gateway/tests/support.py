"""A real gateway process, and clients crude enough to leave at any byte."""

import http.client
import json
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typing_extensions import Self

from images.gateway.tests.pacing import paced_messages

GATEWAY_KEY = "gateway-key-for-tests"
ENGINE_KEY = "engine-key-for-tests"
CHAT = "/v1/chat/completions"
SOURCES = Path(__file__).parents[1] / "src"

LONG_TICK_S = 30.0
"""Far longer than any deadline here: what happens before the next tick was not the tick's doing."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One connection, written to and read from by hand."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read_until(self, expected: bytes) -> None:
        while expected not in self.received:
            self.read_more(expected)

    def read_more(self, expected: bytes = b"more") -> None:
        part = self._socket.recv(65536)
        assert part, f"closed before {expected!r}: {self.received!r}"
        self.received += part

    def read_to_end_of_stream(self) -> bytes:
        """What a chunked answer carried."""
        head, _, rest = self._read_to(b"\r\n0\r\n\r\n").partition(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        body = bytearray()
        at = 0
        while size := int(rest[at : (line := rest.index(b"\r\n", at))], 16):
            body += rest[line + 2 : line + 2 + size]
            at = line + 2 + size + 2
        return bytes(body)

    def _read_to(self, end: bytes) -> bytes:
        received = bytearray(self.received)
        while not received.endswith(end):
            part = self._socket.recv(2**20)
            assert part, f"closed before {end!r}"
            received += part
        self.received = bytes(received)
        return self.received

    def read_to_close(self) -> bytes:
        while part := self._socket.recv(65536):
            self.received += part
        return self.received

    def die(self, reset: bool) -> None:
        """As a process does: its kernel says goodbye, or that nobody is there."""
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def leave(self) -> None:
        self._socket.close()


@dataclass(slots=True)
class Gateway:
    process: subprocess.Popen[str]
    port: int
    log: list[str]
    reader: threading.Thread = field(repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def metrics_port(self) -> int:
        says = (json.loads(line)["says"] for line in self.log if "metrics on port" in line)
        return int(next(says).split()[-1])

    def scrape(self, path: str = "/metrics") -> Answer:
        return Gateway(self.process, self.metrics_port, self.log, self.reader).ask(
            "GET", path, key=None
        )

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        key: str | None = GATEWAY_KEY,
    ) -> Answer:
        sent = dict(headers or {})
        if key is not None:
            sent["authorization"] = f"Bearer {key}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def chat(self, body: bytes, request_id: str) -> Client:
        """A connection on which a chat request was just sent."""
        client = Client(self.port)
        client.send(chat_head(len(body), request_id) + body)
        return client

    def metric(self, name: str, **labels: str) -> float:
        """A sample of /metrics; 0 where there is none yet."""
        wanted = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
        prefix = f"{name}{{{wanted}}} " if wanted else f"{name} "
        for line in self.scrape().body.decode().splitlines():
            if line.startswith(prefix):
                return float(line.removeprefix(prefix))
        return 0.0

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.exit_code()

    def exit_code(self) -> int:
        code = self.process.wait(timeout=30)
        self.reader.join(10)
        return code


def chat_head(length: int, request_id: str, *, key: str = GATEWAY_KEY) -> bytes:
    return (
        f"POST {CHAT} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\nx-request-id: {request_id}\r\n"
        f"content-length: {length}\r\n\r\n"
    ).encode()


def chat_body(*, stream: bool = True, **paced: object) -> bytes:
    asked = {"model": "paced", "messages": paced_messages(**paced), "stream": stream}
    return json.dumps(asked).encode()


def new_id() -> str:
    return uuid.uuid4().hex


def eventually(true: Callable[[], bool], within_s: float = 10) -> bool:
    """For what can only be asked again and again; never longer than `within_s`."""
    deadline_s = time.monotonic() + within_s
    while not (is_true := true()) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return is_true


def environment(tmp_path: Path, upstream_url: str, **more: str) -> dict[str, str]:
    """What compose.yaml gives the container, on loopback and a free port."""
    keys = {"UPSTREAM_KEY_FILE": ENGINE_KEY, "API_KEY_FILE": GATEWAY_KEY}
    for name, key in keys.items():
        (tmp_path / name).write_text(key + "\n")
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(SOURCES),
        "PYTHONWARNINGS": "error",
        "UPSTREAM_URL": upstream_url,
        **{name: str(tmp_path / name) for name in keys},
        "LISTEN_HOST": "127.0.0.1",
        "LISTEN_PORT": "0",
        "METRICS_PORT": "0",
        **more,
    }


@contextmanager
def running_gateway(env: Mapping[str, str]) -> Iterator[Gateway]:
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway"],
        env=dict(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    log: list[str] = []
    ports: queue.Queue[int | None] = queue.Queue()

    def read_log() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            log.append(line)
            if "Uvicorn running on http://127.0.0.1:" in line:
                ports.put(int(line.split("127.0.0.1:")[1].split()[0]))
        ports.put(None)

    reader = threading.Thread(target=read_log)
    reader.start()
    try:
        port = ports.get(timeout=30)
        assert port is not None, "".join(log)
        yield Gateway(process, port, log, reader)
    finally:
        process.kill()
        process.wait()
        reader.join()
        if process.stdout is not None:
            process.stdout.close()


def policy_file(tmp_path: Path, **parts: Mapping[str, object]) -> str:
    """Where a policy was written that says no more than `parts`."""
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"version": 1, **parts}))
    return str(path)

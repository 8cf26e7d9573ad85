"""The listening sockets, and HTTP as far as it is the same for every dialect."""

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from hub.answers import Answer, Plain, Request


class Door(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        kind: str,
        route: Callable[[Request], Answer],
        serve: Callable[["Handler", Request, Answer], None],
    ) -> None:
        super().__init__(address, Handler)
        self.kind = kind
        self.route = route
        self.serve = serve
        self.name = f"hub's door {kind}"
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def run(self) -> None:
        self.serve_forever(poll_interval=0.02)

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        with self._open_lock:
            for connection in self._open:
                # Not RST: its thread may be inside a call on that very descriptor.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients leave in the middle here, all the time. Anything else is the hub's own fault."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def door(self) -> Door:
        return cast("Door", self.server)

    def do_GET(self) -> None:
        door = self.door
        length = int(self.headers.get("Content-Length") or 0)
        host = self.headers.get("Host") or f"127.0.0.1:{door.port}"
        request = Request(
            self.command, self.path, self.headers, self.rfile.read(length), f"http://{host}"
        )
        answer = door.route(request)
        if request.path.startswith("/_"):
            assert isinstance(answer, Plain)
            self.send_plain(answer)
            return
        door.serve(self, request, answer)

    do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815 - the names that the library looks for

    def send_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def send_plain(self, answer: Plain) -> None:
        headers = {**answer.headers, "Content-Length": str(len(answer.body))}
        self.send_head(answer.status, headers)
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """The hub keeps a log of its own."""

"""An engine that answers as another was recorded: for whatever stands in front of it."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from recording.asked import STORY, requests, sign_of
from recording.recorded import Recording, Spoken

_PATIENCE_S = 20
# A gateway may make a stream of what its client asks for whole.
_CHATS = frozenset({"chat", "chat, stream with usage"})
# The same request as another one, but for its key or its model.
_TOLD_APART = frozenset({"models, wrong key", "unknown model", "wrong key", "no key"})


class Replay(ThreadingHTTPServer):
    """`unforeseen`: signs of what it was asked and nobody recorded.

    `story_until`: of a story that is told the pieces that come before it waits, either until its
    client has left (`left`) or, where a second request was refused beside it, until that was (`met`).
    """

    daemon_threads = True

    def __init__(self, recording: Recording, key: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.recording = recording
        self.key = key
        self.unforeseen: list[str] = []
        self.asked: list[str] = []
        self.story_until: int | None = None
        self.telling = threading.Event()
        self.left = threading.Event()
        self.met = threading.Event()
        engine = recording.engine
        foreseen = requests(engine.model, engine.context_tokens).items()
        self._names = {
            sign_of(one.method, one.path, one.body): name
            for name, one in foreseen
            if name not in _TOLD_APART
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no error here; anything else is told."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def answer_to(self, method: str, path: str, body: bytes, key: str | None) -> Spoken:
        answers = self.recording.answers
        name = self._names.get(sign_of(method, path, body))
        if key != self.key and name != "health":
            name = "models, wrong key" if method == "GET" else "wrong key"
        elif name is None:
            self.unforeseen.append(sign_of(method, path, body))
            name = "unknown path"
        elif body and _model_in(body) not in {None, self.recording.engine.model}:
            name = "unknown model"
        self.asked.append(name)
        refused_beside = self.recording.second.status != answers["chat"].status
        if name in _CHATS and refused_beside and self.telling.is_set() and not self.met.is_set():
            self.met.set()
            return self.recording.second
        return answers[name]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Replay

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("content-length", 0))))

    def log_message(self, *_: Any) -> None:
        """Nothing: pytest shows what matters."""

    def _answer(self, body: bytes) -> None:
        if self.path == "/v1/chat/completions" and STORY.encode() in body:
            self._tell()
            return
        key = self.headers.get("authorization", "").removeprefix("Bearer ")
        self._send(self.server.answer_to(self.command, self.path, body, key or None))

    def _tell(self) -> None:
        first, server = self.server.recording.first, self.server
        # The watch for the client's leaving would read the next request's first byte.
        self._begin(first, last=server.story_until is not None)
        for number, piece in enumerate(first.pieces):
            if number == server.story_until:
                server.telling.set()
                if not self._goes_on():
                    return
            try:
                self._piece(piece)
            except OSError:
                # Sooner than at the piece that its leaving is waited for.
                server.left.set()
                raise
        self._end()

    def _goes_on(self) -> bool:
        """Once another request was refused beside it; not where its client has left before."""
        if self.server.met.is_set():
            return True
        left = threading.Thread(target=self._until_left, daemon=True)
        left.start()
        if self.server.recording.second.status == self.server.recording.first.status:
            left.join(_PATIENCE_S)
            return False
        while not self.server.met.wait(0.05):
            if self.server.left.is_set():
                return False
        return True

    def _until_left(self) -> None:
        try:
            gone = self.connection.recv(1) == b""
        except OSError:
            gone = True
        if gone:
            self.server.left.set()
        self.close_connection = True

    def _send(self, spoken: Spoken) -> None:
        self._begin(spoken)
        for piece in spoken.pieces:
            self._piece(piece)
        self._end()

    def _begin(self, spoken: Spoken, *, last: bool = False) -> None:
        """`last`: the connection is for no other request after this one."""
        self._chunked = spoken.chunked
        self.send_response_only(spoken.status)
        for name, value in spoken.headers.items():
            if name not in {"connection", "transfer-encoding", "keep-alive"}:
                self.send_header(name, value)
        if last:
            self.send_header("connection", "close")
        if spoken.chunked:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(len(spoken.body.encode())))
        self.end_headers()

    def _piece(self, piece: str) -> None:
        data = piece.encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        self.wfile.flush()

    def _end(self) -> None:
        if self._chunked:
            self.wfile.write(b"0\r\n\r\n")


def _model_in(body: bytes) -> str | None:
    try:
        said: Any = json.loads(body)
    except ValueError:
        return None
    model = said.get("model")
    return model if isinstance(model, str) else None


@contextmanager
def replaying(recording: Recording, key: str) -> Iterator[Replay]:
    with Replay(recording, key) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

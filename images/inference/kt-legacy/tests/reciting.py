"""A model that recites, a tokenizer of bytes, and the real server over both."""

import asyncio
import http.client
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import uvicorn

from kt_legacy_engine.app import App
from kt_legacy_engine.asking import Asking
from kt_legacy_engine.connection import Protocol
from kt_legacy_engine.desk import Desk
from kt_legacy_engine.model import Logits

KEY = "key-for-tests"
BEGIN, END, USER, ASSISTANT, SYSTEM = 256, 257, 258, 259, 260
VOCABULARY = 261
CHUNK = 16
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PATIENCE_S = 20


class Bytes:
    """Every byte is a token, so that half a character is easily had."""

    end_tokens = frozenset({END})

    def encode(self, text: str) -> list[int]:
        return [BEGIN, *text.encode()]

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        roles = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
        tokens = [BEGIN]
        for message in messages:
            if message["role"] not in roles:
                raise ValueError(f"there are no messages of a {message['role']}")
            tokens += [roles[message["role"]], *message["content"].encode()]
            if message["role"] == "assistant":
                tokens.append(END)
        return [*tokens, ASSISTANT]

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token < BEGIN).decode(errors="replace")

    def raw(self, token: int) -> bytes:
        return bytes([token]) if token < BEGIN else b""


@dataclass
class Reciter:
    """Says `reply` after the last ASSISTANT or the last '|'. `calls`: every extend, as it begins.

    While held, each extend waits for a permit.
    """

    reply: str = "Paris."
    capacity: int = 4096
    sequence: list[int] = field(default_factory=list)
    calls: "queue.Queue[tuple[int, int]]" = field(default_factory=queue.Queue)
    fails: Exception | None = None
    permits: threading.Semaphore | None = None
    spoils: bool = False

    def extend(self, tokens: Sequence[int]) -> Logits:
        self.calls.put((len(self.sequence), len(tokens)))
        if self.permits is not None:
            assert self.permits.acquire(timeout=PATIENCE_S)
        if self.fails is not None:
            raise self.fails
        self.sequence += tokens
        assert len(self.sequence) <= self.capacity
        return self.logits()

    def truncate(self, length: int) -> None:
        assert length <= len(self.sequence)
        del self.sequence[length:]

    def logits(self) -> Logits:
        logits = np.zeros(VOCABULARY, dtype=np.float32)
        logits[ord(".")] = 10
        logits[self.next()] = 20
        if self.spoils:
            logits[0] = np.nan
        return logits

    def next(self) -> int:
        marks = [n for n, t in enumerate(self.sequence) if t in {ASSISTANT, ord("|")}]
        said = len(self.sequence) - marks[-1] - 1 if marks else 0
        wanted = [*self.reply.encode(), END]
        return wanted[said] if said < len(wanted) else ord(".")

    def hold(self) -> None:
        self.permits = threading.Semaphore(0)

    def permit(self, steps: int) -> None:
        assert self.permits is not None
        self.permits.release(steps)

    def seen(self) -> list[tuple[int, int]]:
        """(how many tokens were there, how many came), since the last time."""
        found = []
        while not self.calls.empty():
            found.append(self.calls.get())
        return found


def an_asking(context_tokens: int = 4096, max_tokens: int = 512) -> Asking:
    return Asking(
        tokenizer=Bytes(),
        model_name="tiny",
        context_tokens=context_tokens,
        vocabulary=VOCABULARY,
        max_tokens=max_tokens,
        temperature=1.0,
        top_p=1.0,
    )


@dataclass
class Engine:
    port: int
    desk: Desk
    log: list[str]
    lost: threading.Event

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """The event loop is busy meanwhile, and hears of nothing."""
        begun, over = threading.Event(), threading.Event()

        def busy() -> None:
            begun.set()
            over.wait(PATIENCE_S)

        self.desk._loop.call_soon_threadsafe(busy)
        assert begun.wait(PATIENCE_S)
        try:
            yield
        finally:
            over.set()

    def get(self, path: str, key: str | None = KEY) -> "Answer":
        return self._ask("GET", path, None, key)

    def post(self, path: str, key: str | None = KEY, **body: Any) -> "Answer":
        return self._ask("POST", path, json.dumps(body), key)

    def chat(self, content: str = "Hello", **body: Any) -> "Answer":
        messages = [{"role": "user", "content": content}]
        return self.post(CHAT, **{"model": "tiny", "messages": messages} | body)

    def complete(self, prompt: str | list[int] = "Say|", **body: Any) -> "Answer":
        return self.post(COMPLETIONS, **{"model": "tiny", "prompt": prompt} | body)

    def metric(self, name: str) -> float:
        lines = dict(line.rsplit(" ", 1) for line in self.get("/metrics").text.splitlines())
        return float(lines[name])

    def leaving_client(self, path: str = CHAT, **body: Any) -> socket.socket:
        """Sends a request. Closing the socket is leaving."""
        told = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]} | body
        data = json.dumps(told).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
        head += f"Content-Length: {len(data)}\r\n\r\n"
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        client.sendall(head.encode() + data)
        return client

    def _ask(self, method: str, path: str, body: str | None, key: str | None) -> "Answer":
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        found = Answer(response.status, dict(response.getheaders()), response.read())
        connection.close()
        return found


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """Of a stream that ended as it should."""
        *events, last, rest = self.body.split(b"\n\n")
        assert (last, rest) == (b"data: [DONE]", b"")
        assert all(event.startswith(b"data: ") for event in events)
        return [json.loads(event[6:]) for event in events]

    def said(self) -> str:
        choices = [choice for event in self.events() for choice in event["choices"]]
        return "".join(
            c["delta"].get("content") or "" if "delta" in c else c["text"] for c in choices
        )


def eventually(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def serving(model: Reciter, *, ready: bool = True, **limits: int) -> Iterator[Engine]:
    """The real server on a free port. `ready`: waits for it, and forgets the warm-up's calls."""
    found: queue.Queue[tuple[Engine, uvicorn.Server]] = queue.Queue()

    async def main() -> None:
        log: list[str] = []
        lost = threading.Event()
        asking = an_asking(**limits)
        desk = Desk(
            lambda _: model,
            asking.tokenizer,
            chunk_tokens=CHUNK,
            say=log.append,
            lost=lambda _: lost.set(),
        )
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            App(desk, asking, key=KEY),
            http=Protocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=PATIENCE_S,
        )
        server = uvicorn.Server(config)
        found.put((Engine(listener.getsockname()[1], desk, log, lost), server))
        desk.start()
        await server.serve(sockets=[listener])
        desk.stop()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    engine, server = found.get(timeout=PATIENCE_S)
    try:
        if ready:
            eventually(lambda: engine.get("/health").status == 200)
            model.seen()
        yield engine
    finally:
        if model.permits is not None:
            model.permit(10_000)
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

"""Runs a paced engine in a thread of a test, behind a real uvicorn on a free loopback port."""

import base64
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import uvicorn

from paced_engine.app import PacedEngine
from paced_engine.pace import Pace


@dataclass(frozen=True, slots=True)
class RunningEngine:
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def seen(self) -> list[dict[str, Any]]:
        """Every request so far."""
        found: list[dict[str, Any]] = self._get("/_seen", within_s=10)[1]
        return found

    def wait(
        self, request_id: str, *, until: str = "started", ticks: int = 0, within_s: float = 10
    ) -> dict[str, Any]:
        """That request, once it has come this far. AssertionError if it does not in time."""
        query = {"request": request_id, "until": until, "ticks": ticks, "within_s": within_s}
        status, seen = self._get(f"/_seen?{urlencode(query)}", within_s=within_s + 10)
        assert status == 200, f"not {until} with {ticks} ticks within {within_s} s: {seen}"
        found: dict[str, Any] = seen
        return found

    @staticmethod
    def body_of(seen: dict[str, Any]) -> bytes:
        return base64.b64decode(seen["body_b64"])

    def set_health(self, status: int) -> None:
        self._ask("POST", "/_health", str(status).encode(), within_s=10)

    def set_tokenizing(self, **how: Any) -> None:
        """Anew: what is not said is as at the start."""
        self._ask("POST", "/_tokenizing", json.dumps(how).encode(), within_s=10)

    def _get(self, path: str, *, within_s: float) -> tuple[int, Any]:
        return self._ask("GET", path, None, within_s=within_s)

    def _ask(self, method: str, path: str, body: bytes | None, within_s: float) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=within_s)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


class _Announcing(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_listening = threading.Event()

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        self.is_listening.set()


@contextmanager
def running_engine(*, api_key: str | None = None) -> Iterator[RunningEngine]:
    engine = PacedEngine(Pace(), api_key=api_key)
    server = _Announcing(
        uvicorn.Config(
            engine,
            host="127.0.0.1",
            port=0,
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=server.run, name="paced engine")
    thread.start()
    try:
        assert server.is_listening.wait(10), "the paced engine did not start"
        yield RunningEngine(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(10)

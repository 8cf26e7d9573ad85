"""A key that is revoked, changed or over ends its requests too, running and waiting ones."""

import asyncio
import hashlib
import json
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.caller import Caller
from gateway.errors import KEY_EXPIRED, ApiError
from gateway.key_watch import KeyWatch
from images.gateway.tests.support import (
    CHAT,
    LONG_TICK_S,
    Client,
    Gateway,
    chat_body,
    chat_head,
    environment,
    eventually,
    new_id,
    running_gateway,
)
from paced_engine.running import RunningEngine

KEY = "a-key-of-its-own"
OTHER_KEY = "a-key-that-stays"


@pytest.fixture
def folder() -> Iterator[Path]:
    # A socket's path has room for a hundred characters only.
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def governed(folder: Path, engine: RunningEngine, tmp_path: Path) -> Iterator[Gateway]:
    _write(folder, _key("k1", KEY), _key("k2", OTHER_KEY))
    env = environment(
        tmp_path,
        engine.url,
        KEYS_FILE=str(folder / "keys.json"),
        CONTROL_SOCKET=str(folder / "control.sock"),
    )
    with running_gateway(env) as running:
        yield running


def _key(key_id: str, key: str, **more: object) -> dict[str, object]:
    digest = hashlib.sha256(key.encode()).hexdigest()
    return {"id": key_id, "name": key_id, "sha256": digest, **more}


def _write(folder: Path, *keys: object) -> None:
    fresh = folder / "keys.new"
    fresh.write_text(json.dumps({"keys": keys}))
    fresh.replace(folder / "keys.json")


def _say(folder: Path, **command: object) -> Any:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / "control.sock"))
        connection.sendall(json.dumps(command).encode() + b"\n")
        return json.loads(connection.makefile().readline())


def _chat(
    gateway: Gateway, request_id: str, key: str = KEY, path: str = CHAT, **how: Any
) -> Client:
    asked = json.loads(chat_body(tick_s=LONG_TICK_S, **how))
    # Ollama has it elsewhere, and refuses what it does not know.
    more = {} if path.startswith("/api") else {"max_tokens": 9}
    body = json.dumps({**asked, **more}).encode()
    client = Client(gateway.port)
    head = chat_head(len(body), request_id, key=key)
    client.send(head.replace(CHAT.encode(), path.encode()) + body)
    return client


def test_a_revoked_keys_requests_end_at_once_and_others_go_on(
    folder: Path, governed: Gateway, engine: RunningEngine
) -> None:
    streamed_id, whole_id, other_id = new_id(), new_id(), new_id()
    with (
        _chat(governed, streamed_id) as streamed,
        _chat(governed, whole_id, stream=False) as whole,
        _chat(governed, other_id, OTHER_KEY) as other,
    ):
        streamed.read_until(b"tick 0")
        other.read_until(b"tick 0")
        engine.wait(whole_id, ticks=1)
        _write(folder, _key("k2", OTHER_KEY))
        assert _say(folder, do="reload")["ended"] == 2

        streamed.read_until(b"0\r\n\r\n")
        last = streamed.received.split(b"data: ")[-1].split(b"\n")[0]
        assert json.loads(last)["error"] == {
            "message": "This API key was revoked. Ask the admin for a new one.",
            "type": "invalid_request_error",
            "param": None,
            "code": "key_revoked",
        }
        whole.read_until(b"key_revoked")
        assert whole.received.startswith(b"HTTP/1.1 401 ")
        for request_id in (streamed_id, whole_id):
            seen = engine.wait(request_id, until="ended")
            assert (seen["closed_at_tick"], seen["ran_to_end"]) == (1, False)
        assert eventually(lambda: _say(folder, do="status")["running"] == 1)
        assert _say(folder, do="reload")["ended"] == 0
        assert not engine.wait(other_id)["ended"]
        wasted = {"key_id": "k1", "model": "default", "kind": "wasted"}
        assert governed.metric("gateway_tokens_total", **wasted) == 2


def test_a_revoked_keys_place_in_the_line_is_free_at_once(
    folder: Path, governed: Gateway, engine: RunningEngine
) -> None:
    _say(folder, do="hold", reason="loading")
    request_id = new_id()
    with _chat(governed, request_id, stream=False) as waiting:
        assert eventually(lambda: _say(folder, do="status")["queued"] == {"k1": 1})
        _write(folder, _key("k2", OTHER_KEY))
        assert _say(folder, do="reload") | {"queued": {}, "ended": 1} == _say(
            folder, do="status"
        ) | {"ended": 1}
        waiting.read_until(b"key_revoked")
        assert waiting.received.startswith(b"HTTP/1.1 401 ")
    assert request_id not in {seen["request_id"] for seen in engine.seen()}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/messages", b'event: error\ndata: {"type":"error","error":{"type":"authentication_error"'),
        ("/api/chat", b'{"error":"This API key has expired. Ask the admin for a new one."}\n'),
    ],
)  # fmt: skip
def test_a_key_that_expires_meanwhile_is_told_in_the_callers_api(
    folder: Path, governed: Gateway, path: str, said: bytes
) -> None:
    """Nobody says anything to the gateway: it looks at the clock and at the file by itself."""
    _write(folder, _key("k1", KEY, expires_at_s=int(time.time()) + 2))
    with _chat(governed, new_id(), path=path) as client:
        client.read_until(b"tick 0")
        client.read_until(said)


def test_a_key_whose_text_was_changed_is_another_one(folder: Path, governed: Gateway) -> None:
    with _chat(governed, new_id()) as client:
        client.read_until(b"tick 0")
        _write(folder, _key("k1", "its-new-text"))
        client.read_until(b"key_revoked")


def test_changed_limits_end_nothing(folder: Path, governed: Gateway) -> None:
    with _chat(governed, new_id()) as client:
        client.read_until(b"tick 0")
        _write(folder, _key("k1", KEY, limits={"running": 1}, expires_at_s=int(time.time()) + 999))
        assert _say(folder, do="reload")["ended"] == 0
        assert _say(folder, do="status")["running"] == 1


class _Ring:
    def __init__(self) -> None:
        self.over: set[str] = set()
        self.refreshed = asyncio.Event()

    def objection(self, caller: Caller) -> ApiError | None:
        return KEY_EXPIRED if caller.key_id in self.over else None

    def refresh(self) -> None:
        self.refreshed.set()


def test_who_has_gone_is_not_ended_and_nobody_twice() -> None:
    async def scene() -> list[str]:
        ring = _Ring()
        watch = KeyWatch(ring)
        ended: list[str] = []
        gone, stays = Caller(key_id="gone", name=""), Caller(key_id="stays", name="")

        def end_gone(_: ApiError) -> None:
            ended.append("gone")

        watch.begin(stays, lambda error: ended.append(error.code))
        watch.begin(gone, end_gone)
        assert watch.look() == 0
        watch.forget(end_gone)
        ring.over = {"gone", "stays"}
        assert (watch.look(), watch.look()) == (1, 0)
        return ended

    assert asyncio.run(scene()) == ["key_expired"]

"""Keys, policy and control while the gateway runs: files that change, and the admin's socket."""

import base64
import hashlib
import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from gateway.ledger import SqliteLedger
from images.gateway.tests.support import (
    CHAT,
    Client,
    Gateway,
    chat_body,
    environment,
    eventually,
    new_id,
    running_gateway,
)
from paced_engine.running import RunningEngine

KEY = "a-key-of-its-own"
WEBUI_KEY = "the-chat-pages-key"


@pytest.fixture
def folder() -> Iterator[Path]:
    # A socket's path has room for a hundred characters only.
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def governed(folder: Path, engine: RunningEngine, tmp_path: Path) -> Iterator[Gateway]:
    (tmp_path / "webui").write_text(WEBUI_KEY)
    env = environment(
        tmp_path,
        engine.url,
        WEBUI_KEY_FILE=str(tmp_path / "webui"),
        KEYS_FILE=str(folder / "keys.json"),
        POLICY_FILE=str(folder / "policy.json"),
        CONTROL_SOCKET=str(folder / "control.sock"),
        LEDGER_FILE=str(folder / "ledger.sqlite"),
    )
    with running_gateway(env) as running:
        yield running


def _write(path: Path, content: object) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(content if isinstance(content, str) else json.dumps(content))
    fresh.replace(path)


def _say(folder: Path, **command: object) -> Any:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / "control.sock"))
        connection.sendall(json.dumps(command).encode() + b"\n")
        return json.loads(connection.makefile().readline())


def _key(**more: object) -> dict[str, object]:
    return {"id": "k1", "name": "One", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), **more}


def test_keys_come_go_and_expire_without_a_restart(folder: Path, governed: Gateway) -> None:
    def status() -> int:
        return governed.ask("GET", "/v1/models", key=KEY).status

    assert status() == 401
    _write(folder / "keys.json", {"keys": [_key()]})
    assert status() == 200
    _write(folder / "keys.json", "half a file")
    assert status() == 200
    _write(folder / "keys.json", {"keys": [_key(expires_at_s=1)]})
    refused = governed.ask("GET", "/v1/models", key=KEY)
    assert (refused.status, refused.json()["error"]["code"]) == (401, "key_expired")
    (folder / "keys.json").unlink()
    assert status() == 401
    assert governed.ask("GET", "/v1/models").status == 200


@pytest.mark.parametrize(
    "keys",
    [
        [_key(), _key(name="Two", sha256="0" * 64)],
        [_key(), _key(id="k2")],
        [_key(id="local")],
        [_key(id="webui")],
    ],
    ids=["one id twice", "one key twice", "the id local", "the id webui"],
)
def test_keys_that_could_not_be_told_apart_are_not_taken(
    folder: Path, governed: Gateway, keys: list[object]
) -> None:
    _write(folder / "keys.json", {"keys": keys})
    assert not _say(folder, do="reload")["ok"]
    assert governed.ask("GET", "/v1/models", key=KEY).status == 401


def test_a_key_that_was_pasted_in_its_digests_place_is_not_in_the_log(
    folder: Path, governed: Gateway
) -> None:
    _write(folder / "keys.json", {"version": 1, "keys": [_key(sha256=KEY)]})
    assert governed.ask("GET", "/v1/models").status == 200
    said = _say(folder, do="reload")
    assert eventually(lambda: any("keys.json" in line for line in governed.log))
    assert (said["ok"], "sha256" in said["error"]) == (False, True)
    assert KEY not in said["error"] + "".join(governed.log)


def test_two_good_keys_at_once_are_none(governed: Gateway) -> None:
    headers = {"x-api-key": WEBUI_KEY}
    assert governed.ask("GET", "/v1/models", headers=headers, key=None).status == 200
    assert governed.ask("GET", "/v1/models", headers=headers).status == 401


def test_the_chat_page_has_a_key_and_books_of_its_own(folder: Path, governed: Gateway) -> None:
    body = chat_body(ticks=3, tick_s=0.0)
    assert governed.ask("POST", CHAT, body, key=WEBUI_KEY).status == 200
    assert governed.stop() == 0
    ledger = SqliteLedger(folder / "ledger.sqlite")
    assert [ledger.spent(key_id, 0).requests for key_id in ("webui", "local")] == [1, 0]
    ledger.close()


def test_what_the_chat_page_asks_for_itself_is_served_last(folder: Path, governed: Gateway) -> None:
    _write(folder / "policy.json", {"queue": {"capacity": 1}})
    _say(folder, do="hold", reason="loading")
    ended: list[str] = []

    def ask(name: str, headers: dict[str, str]) -> None:
        # Long enough that the one which is served second can't be told of first.
        governed.ask("POST", CHAT, chat_body(ticks=8, tick_s=0.1), headers, key=WEBUI_KEY)
        ended.append(name)

    asking = []
    for name, task in [("title", "title_generation"), ("message", "")]:
        asking.append(Thread(target=ask, args=(name, {"x-background-task": task})))
        asking[-1].start()
        waiting = {"webui": len(asking)}
        assert eventually(lambda: _say(folder, do="status")["queued"] == waiting)  # noqa: B023
    _say(folder, do="release")
    for each in asking:
        each.join(20)
    assert ended == ["message", "title"]


def test_a_key_that_has_had_its_day_is_told_not_to_try_again(
    folder: Path, governed: Gateway
) -> None:
    _write(folder / "keys.json", {"keys": [_key(limits={"tokens_per_day": 4})]})
    body = chat_body(ticks=5, tick_s=0.0)
    assert governed.ask("POST", CHAT, body, key=KEY).status == 200
    refused = governed.ask("POST", CHAT, body, key=KEY)
    assert (refused.status, refused.json()["error"]["code"]) == (429, "daily_quota")
    assert refused.headers["x-should-retry"] == "false"
    assert 1 <= int(refused.headers["retry-after"]) <= 120


def test_a_key_over_its_rate_is_429_and_told_when_to_come_back(
    folder: Path, governed: Gateway
) -> None:
    _write(folder / "keys.json", {"keys": [_key(limits={"requests_per_minute": 1})]})
    body = chat_body(stream=False, tick_s=0.0)
    assert governed.ask("POST", CHAT, body, key=KEY).status == 200
    refused = governed.ask("POST", CHAT, body, key=KEY)
    assert (refused.status, refused.json()["error"]["code"]) == (429, "rate_limit")
    assert 50 <= int(refused.headers["retry-after"]) <= 60


def test_a_hold_keeps_requests_until_its_release(
    folder: Path, governed: Gateway, engine: RunningEngine
) -> None:
    assert _say(folder, do="hold", reason="switching")["state"] == "hold"
    request_id = new_id()
    with governed.chat(chat_body(stream=False, tick_s=0.0), request_id) as client:
        assert eventually(lambda: _say(folder, do="status")["queued"] == {"local": 1})
        assert request_id not in {seen["request_id"] for seen in engine.seen()}
        assert _say(folder, do="release")["state"] == "open"
        client.read_until(b"finish_reason")


def test_a_client_that_leaves_the_line_never_reaches_the_engine(
    folder: Path, governed: Gateway, engine: RunningEngine
) -> None:
    _say(folder, do="hold", reason="loading")
    request_id = new_id()
    client: Client = governed.chat(chat_body(), request_id)
    assert eventually(lambda: _say(folder, do="status")["queued"] == {"local": 1})
    client.leave()
    assert eventually(lambda: _say(folder, do="status")["queued"] == {})
    _say(folder, do="release")
    assert governed.metric("gateway_requests_cancelled_total", phase="queued") == 1
    assert request_id not in {seen["request_id"] for seen in engine.seen()}


def test_the_policy_in_force_is_the_file_as_it_is_now(
    folder: Path, governed: Gateway, engine: RunningEngine
) -> None:
    policy = {"model": {"engine": "paced", "max_tokens": 5}, "queue": {"capacity": 3}}
    _write(folder / "policy.json", policy)
    assert _say(folder, do="reload")["capacity"] == 3
    assert _say(folder, do="capacity", capacity=7)["capacity"] == 7
    request_id = new_id()
    stream = b'"stream":true,"stream_options":{"include_usage":true}'
    body = b'{"model":"any","messages":[],"max_tokens":9,"stop":"\xe5\x8c\x97",%s}' % stream
    assert governed.ask("POST", CHAT, body, {"x-request-id": request_id}).status == 200
    got = engine.wait(request_id, until="ended")["body_b64"]
    expected = b'{"model":"paced","messages":[],"max_tokens":5,"stop":"\xe5\x8c\x97",%s}' % stream
    assert got == base64.b64encode(expected).decode()
    _write(folder / "policy.json", {"queue": {"capacity": 0}})
    refused = _say(folder, do="reload")
    assert not refused["ok"]
    assert "capacity" in refused["error"]


@pytest.mark.parametrize(
    "command",
    [{}, {"do": "stop"}, {"do": "capacity", "capacity": 0}, {"do": "capacity", "capacity": 10**30}],
)
def test_what_the_socket_does_not_understand_it_says(
    folder: Path, governed: Gateway, command: dict[str, object]
) -> None:
    assert not _say(folder, **command)["ok"]
    assert ((folder / "control.sock").stat().st_mode & 0o777) == 0o600


def test_what_was_used_is_in_the_books(folder: Path, governed: Gateway) -> None:
    assert governed.ask("POST", CHAT, chat_body(ticks=3, tick_s=0.0)).status == 200
    assert governed.stop() == 0
    ledger = SqliteLedger(folder / "ledger.sqlite")
    spent = ledger.spent("local", 0)
    ledger.close()
    assert (spent.requests, spent.completion_tokens) == (1, 3)


def test_metrics_have_a_port_of_their_own(governed: Gateway) -> None:
    assert b"gateway_capacity 64.0" in governed.scrape().body
    assert b'gateway_line_state{state="open"} 1.0' in governed.scrape().body
    for path in ("/v1/models", "/", "/metrics/", "/metrics/engine"):
        assert governed.scrape(path).status == 404
    assert governed.ask("GET", "/metrics").status == 404


def test_the_engines_metrics_are_passed_on_as_they_are(
    folder: Path, governed: Gateway, engine: RunningEngine
) -> None:
    _write(folder / "policy.json", {"capabilities": {"metrics_path": "/v1/models"}})
    found = governed.scrape("/metrics/engine")
    assert (found.status, found.headers["content-type"]) == (200, "application/json")
    assert found.body == governed.ask("GET", "/v1/models").body
    _write(folder / "policy.json", {"capabilities": {"metrics_path": "/nowhere"}})
    assert governed.scrape("/metrics/engine").status == 502


def test_what_is_used_is_counted_by_key_and_model(folder: Path, governed: Gateway) -> None:
    _write(folder / "keys.json", {"keys": [_key()]})
    assert governed.ask("POST", CHAT, chat_body(ticks=3, tick_s=0.0), key=KEY).status == 200
    of_key = {"key_id": "k1", "model": "default"}
    counted = "gateway_tokens_total"
    assert eventually(lambda: governed.metric(counted, kind="completion", **of_key) == 3)
    assert governed.metric(counted, kind="wasted", **of_key) == 0

"""Starting with a bad configuration, stopping with answers under way, and what the log says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from images.gateway.tests.support import (
    ENGINE_KEY,
    GATEWAY_KEY,
    LONG_TICK_S,
    chat_body,
    environment,
    eventually,
    new_id,
    policy_file,
    running_gateway,
)
from paced_engine.running import RunningEngine


def test_sigterm_lets_an_answer_finish_and_exits_0(engine: RunningEngine, tmp_path: Path) -> None:
    request_id = new_id()
    with running_gateway(environment(tmp_path, engine.url)) as gateway:
        client = gateway.chat(chat_body(ticks=5, tick_s=0.3), request_id)
        client.read_until(b"tick 0")
        gateway.process.terminate()
        with client:
            assert client.read_to_close().endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert gateway.exit_code() == 0
    assert engine.wait(request_id, until="ended")["ran_to_end"]


def test_while_it_drains_new_requests_are_told_to_come_again_and_those_in_line_are_served(
    engine: RunningEngine, tmp_path: Path
) -> None:
    policy = policy_file(tmp_path, queue={"capacity": 1})
    with running_gateway(environment(tmp_path, engine.url, POLICY_FILE=policy)) as gateway:
        running = gateway.chat(chat_body(ticks=8, tick_s=0.3), new_id())
        running.read_until(b"tick 0")
        queued = gateway.chat(chat_body(ticks=2, tick_s=0.3), new_id())
        assert eventually(lambda: gateway.metric("gateway_requests_queued") == 1)

        gateway.process.terminate()
        assert eventually(lambda: gateway.ask("GET", "/readyz").status == 503)
        ready = gateway.ask("GET", "/readyz")
        refused = gateway.ask("POST", "/v1/chat/completions", chat_body())
        assert gateway.ask("GET", "/healthz").status == 200

        with running, queued:
            for client in (running, queued):
                assert client.read_to_close().endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert gateway.exit_code() == 0
    assert ready.json() == {"ready": False, "reason": "the gateway is shutting down"}
    assert (refused.status, refused.json()["error"]["code"]) == (503, "shutting_down")
    assert 1 <= int(refused.headers["retry-after"]) <= 120


def test_sigterm_twice_does_not_wait(engine: RunningEngine, tmp_path: Path) -> None:
    with running_gateway(environment(tmp_path, engine.url, DRAIN_S="1000")) as gateway:
        client = gateway.chat(chat_body(tick_s=LONG_TICK_S), new_id())
        client.read_until(b"tick 0")
        gateway.process.terminate()
        assert eventually(lambda: gateway.ask("GET", "/readyz").status == 503)
        gateway.stop()
        client.leave()


@pytest.mark.parametrize("prefill_s", [0.0, LONG_TICK_S])
def test_sigterm_ends_an_answer_that_takes_too_long_with_an_error_and_exits_0(
    engine: RunningEngine, tmp_path: Path, prefill_s: float
) -> None:
    request_id = new_id()
    with running_gateway(environment(tmp_path, engine.url, DRAIN_S="1")) as gateway:
        client = gateway.chat(chat_body(tick_s=LONG_TICK_S, prefill_s=prefill_s), request_id)
        engine.wait(request_id)
        if not prefill_s:
            client.read_until(b"tick 0")
        gateway.process.terminate()
        with client:
            answer = client.read_to_close().decode()
        assert gateway.exit_code() == 0
        assert "Traceback" not in "".join(gateway.log)
    assert answer.startswith(f"HTTP/1.1 {503 if prefill_s else 200} ")
    assert '"code":"shutting_down"' in answer
    assert "[DONE]" not in answer
    assert not engine.wait(request_id, until="ended")["ran_to_end"]


def test_sigterm_is_not_held_up_by_a_client_that_does_not_read(
    engine: RunningEngine, tmp_path: Path
) -> None:
    request_id = new_id()
    with running_gateway(environment(tmp_path, engine.url, DRAIN_S="1")) as gateway:
        body = chat_body(tick_s=0.0, ticks=400, pad_bytes=2**18)
        with gateway.chat(body, request_id):
            engine.wait(request_id, ticks=1)
            assert gateway.stop() == 0
    assert not engine.wait(request_id, until="ended")["ran_to_end"]


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"API_KEY_FILE": "/nowhere/key"}, "/nowhere/key"),
        ({"UPSTREAM_KEY_FILE": "/dev/null"}, "/dev/null does not hold one printable key"),
        ({"UPSTREAM_URL": "inference:8000"}, "upstream_url"),
        ({"MAX_BODY_BYTES": "0"}, "max_body_bytes"),
    ],
)
def test_a_bad_configuration_exits_2_and_says_what_is_wrong(
    tmp_path: Path, broken: dict[str, str], says: str
) -> None:
    env = environment(tmp_path, "http://127.0.0.1:1", **broken)
    ended = subprocess.run(
        [sys.executable, "-m", "gateway"],
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_log_has_one_line_a_request_and_neither_prompts_nor_keys(
    engine: RunningEngine, tmp_path: Path
) -> None:
    request_id, cut_id = new_id(), new_id()
    with running_gateway(environment(tmp_path, engine.url)) as gateway:
        body = chat_body(stream=False, tick_s=0.0).replace(
            b"[]", b'[{"role":"user","content":"a private question"}]'
        )
        with gateway.chat(body, request_id) as client:
            client.read_until(b"finish_reason")
        gateway.ask("POST", "/v1/chat/completions?q=secret", body, key="a wrong key")
        with gateway.chat(chat_body(ticks=3, cut_at_tick=1), cut_id) as client:
            client.read_until(b"engine_cut_off")
        assert gateway.stop() == 0
        log = "".join(gateway.log)
    lines = [json.loads(line) for line in gateway.log]
    (said,) = [line for line in lines if line.get("request") == request_id]
    assert (said["method"], said["path"]) == ("POST", "/v1/chat/completions")
    assert (said["status"], said["complete"], said["key"]) == (200, True, "local")
    assert [line["code"] for line in lines if line.get("request") == cut_id and "code" in line] == [
        "engine_cut_off"
    ]
    for private in ("private question", "q=secret", "a wrong key", GATEWAY_KEY, ENGINE_KEY):
        assert private not in log

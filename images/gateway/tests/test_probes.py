"""Alive, ready, and counted."""

import socket
import subprocess
import sys
from pathlib import Path

from images.gateway.tests.support import (
    CHAT,
    SOURCES,
    Gateway,
    chat_body,
    environment,
    eventually,
    running_gateway,
)
from paced_engine.running import RunningEngine


def test_ready_follows_the_engine_both_ways(gateway: Gateway, engine: RunningEngine) -> None:
    ready = gateway.ask("GET", "/readyz")
    assert (ready.status, ready.json()) == (200, {"ready": True, "reason": ""})

    engine.set_health(503)
    try:
        loading = gateway.ask("GET", "/readyz")
    finally:
        engine.set_health(200)
    assert loading.status == 503
    assert loading.json() == {
        "ready": False,
        "reason": "the engine is still loading, or unwell: it says 503",
    }
    assert gateway.ask("GET", "/readyz").status == 200


def test_an_engine_that_never_answers_makes_the_gateway_unready_but_not_dead(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = environment(tmp_path, url, READINESS_TIMEOUT_S="0.2")
        with running_gateway(env) as gateway:
            assert gateway.ask("GET", "/readyz").json() == {
                "ready": False,
                "reason": "the engine's /health is silent for 0.2 s",
            }
            assert gateway.ask("GET", "/healthz").status == 200


def _healthcheck(port: int) -> int:
    return subprocess.run(
        [sys.executable, "-m", "gateway.health"],
        env={"PYTHONPATH": str(SOURCES), "LISTEN_PORT": str(port)},
        check=False,
        capture_output=True,
    ).returncode


def test_the_healthcheck_exits_0_while_the_gateway_answers_and_1_when_it_is_gone(
    gateway: Gateway,
) -> None:
    assert _healthcheck(gateway.port) == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free_port = taken.getsockname()[1]
    assert _healthcheck(free_port) == 1


def test_requests_are_counted_by_route_and_status_and_unknown_paths_are_one_route(
    gateway: Gateway,
) -> None:
    def count(route: str, status: int) -> float:
        return gateway.metric("gateway_requests_total", route=route, status=str(status))

    served, unknown = count(CHAT, 200), count("other", 404)
    first_bytes = gateway.metric("gateway_first_byte_seconds_count", route=CHAT)

    gateway.ask("POST", CHAT, chat_body(tick_s=0.0))
    gateway.ask("GET", "/one")
    gateway.ask("GET", "/two")

    assert eventually(lambda: count(CHAT, 200) == served + 1)
    assert eventually(lambda: count("other", 404) == unknown + 2)
    assert gateway.metric("gateway_first_byte_seconds_count", route=CHAT) == first_bytes + 1

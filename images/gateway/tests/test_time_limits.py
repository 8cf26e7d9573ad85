"""Each limit on the engine's time ends an answer under its own name, and stops the engine."""

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from images.gateway.tests.pacing import paced_words
from images.gateway.tests.support import (
    CHAT,
    LONG_TICK_S,
    Answer,
    Client,
    Gateway,
    chat_body,
    environment,
    eventually,
    new_id,
    policy_file,
    running_gateway,
)
from paced_engine.running import RunningEngine

ERRORS = "gateway_upstream_errors_total"
LIMIT_S = 0.4


@contextlib.contextmanager
def _limited(tmp_path: Path, url: str, **timeouts: float) -> Iterator[Gateway]:
    policy = policy_file(tmp_path, timeouts=timeouts)
    with running_gateway(environment(tmp_path, url, POLICY_FILE=policy)) as gateway:
        yield gateway


def _error(answer: Answer) -> Mapping[str, str]:
    """From a status, or from the last event of a stream."""
    last = answer.body.decode().strip().split("\n\n")[-1].removeprefix("data: ")
    error: Mapping[str, str] = json.loads(last)["error"]
    return error


@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_without_a_first_token_in_time_is_504_and_stopped(
    engine: RunningEngine, tmp_path: Path, *, stream: bool
) -> None:
    request_id = new_id()
    with _limited(tmp_path, engine.url, first_token_base_s=LIMIT_S) as gateway:
        body = chat_body(stream=stream, prefill_s=LONG_TICK_S)
        answer = gateway.ask("POST", CHAT, body, {"x-request-id": request_id})
        assert gateway.metric(ERRORS, code="first_token_timeout") == 1
        assert eventually(lambda: gateway.metric("gateway_requests_running") == 0)
    assert (answer.status, _error(answer)["code"]) == (504, "first_token_timeout")
    assert _error(answer)["message"] == "The engine gave no token within 0.4 s."
    assert not engine.wait(request_id, until="ended")["ran_to_end"]


def test_an_answer_that_the_engine_gives_whole_is_not_late_for_having_no_first_token(
    engine: RunningEngine, tmp_path: Path
) -> None:
    policy = policy_file(
        tmp_path,
        timeouts={"first_token_base_s": LIMIT_S, "idle_s": LIMIT_S},
        capabilities={"whole_as_stream": False},
    )
    with running_gateway(environment(tmp_path, engine.url, POLICY_FILE=policy)) as gateway:
        body = chat_body(stream=False, tick_s=LIMIT_S, ticks=3)
        assert gateway.ask("POST", CHAT, body).status == 200


@pytest.mark.parametrize(("stream", "status"), [(True, 200), (False, 504)])
def test_an_answer_that_takes_too_long_in_all_is_ended_and_stopped(
    engine: RunningEngine, tmp_path: Path, status: int, *, stream: bool
) -> None:
    request_id = new_id()
    with _limited(tmp_path, engine.url, total_s=LIMIT_S) as gateway:
        body = chat_body(stream=stream, tick_s=LIMIT_S / 4, ticks=1000)
        answer = gateway.ask("POST", CHAT, body, {"x-request-id": request_id})
    assert (answer.status, _error(answer)["code"]) == (status, "total_timeout")
    assert _error(answer)["message"] == "The answer took longer than 0.4 s."
    assert not engine.wait(request_id, until="ended")["ran_to_end"]


def test_an_engine_that_falls_silent_mid_stream_is_told_as_the_last_event(
    engine: RunningEngine, tmp_path: Path
) -> None:
    request_id = new_id()
    with _limited(tmp_path, engine.url, idle_s=LIMIT_S) as gateway:
        headers = {"x-request-id": request_id}
        answer = gateway.ask("POST", CHAT, chat_body(tick_s=LONG_TICK_S), headers)
    assert b"tick 0" in answer.body
    assert b"[DONE]" not in answer.body
    assert _error(answer)["code"] == "idle_timeout"
    assert not engine.wait(request_id, until="ended")["ran_to_end"]


def test_an_engine_that_falls_silent_in_an_answer_without_stream_is_504(
    engine: RunningEngine, tmp_path: Path
) -> None:
    request_id = new_id()
    with _limited(tmp_path, engine.url, idle_s=LIMIT_S) as gateway:
        body = chat_body(stream=False, tick_s=LONG_TICK_S)
        answer = gateway.ask("POST", CHAT, body, {"x-request-id": request_id})
    assert (answer.status, _error(answer)["code"]) == (504, "idle_timeout")
    assert not engine.wait(request_id, until="ended")["ran_to_end"]


def test_tokens_that_come_in_time_are_not_silence(engine: RunningEngine, tmp_path: Path) -> None:
    with _limited(tmp_path, engine.url, idle_s=LIMIT_S, first_token_base_s=LIMIT_S) as gateway:
        answer = gateway.ask("POST", CHAT, chat_body(tick_s=LIMIT_S / 4, ticks=12))
    assert answer.body.endswith(b"data: [DONE]\n\n")


def test_a_longer_prompt_may_take_longer_to_its_first_token(
    engine: RunningEngine, tmp_path: Path
) -> None:
    limits = {"first_token_base_s": LIMIT_S, "first_token_per_prompt_token_s": 0.01}
    words = paced_words(prefill_s=1.5, tick_s=0.0)
    with _limited(tmp_path, engine.url, **limits) as gateway:
        # 4,000 bytes are some 1,000 tokens, and those ten seconds.
        short, long = (
            gateway.ask(
                "POST",
                CHAT,
                json.dumps(
                    {"messages": [{"role": "user", "content": content}], "stream": True}
                ).encode(),
            )
            for content in (words, words + "x" * 4000)
        )
    assert (short.status, _error(short)["code"]) == (504, "first_token_timeout")
    assert long.body.endswith(b"data: [DONE]\n\n")


def test_a_client_that_does_not_read_is_not_an_engine_that_is_silent(
    engine: RunningEngine, tmp_path: Path
) -> None:
    with _limited(tmp_path, engine.url, idle_s=LIMIT_S) as gateway:
        # Far more than the sockets on the way hold: the gateway has to wait for its client.
        body = chat_body(tick_s=0.0, ticks=200, pad_bytes=2**18)
        with gateway.chat(body, request_id := new_id()) as slow:
            engine.wait(request_id, ticks=1)
            # The clock: another answer that takes three times the limit.
            gateway.ask("POST", CHAT, chat_body(tick_s=LIMIT_S / 2, ticks=6))
            assert slow.read_to_end_of_stream().endswith(b"data: [DONE]\n\n")


def test_a_client_that_does_not_read_keeps_the_engine_for_its_limit_only(
    engine: RunningEngine, tmp_path: Path
) -> None:
    with _limited(tmp_path, engine.url, client_s=LIMIT_S, idle_s=LONG_TICK_S) as gateway:
        body = chat_body(tick_s=0.0, ticks=200, pad_bytes=2**18)
        with gateway.chat(body, request_id := new_id()) as slow:
            # Not the end of the client: only now it begins to read.
            seen = engine.wait(request_id, until="ended")
            assert eventually(lambda: gateway.metric("gateway_requests_running") == 0)
            slow.read_until(b"client_timeout")
        assert b"[DONE]" not in slow.received
        quick = gateway.ask("POST", CHAT, chat_body(tick_s=LIMIT_S / 4, ticks=12))
    assert not seen["ran_to_end"]
    assert quick.body.endswith(b"data: [DONE]\n\n")


def test_an_engine_that_takes_no_connection_is_named_so(tmp_path: Path) -> None:
    # A queue of connections that nobody accepts, and that is full.
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = full.getsockname()[1]
        stack.enter_context(Client(port))
        gateway = stack.enter_context(
            _limited(tmp_path, f"http://127.0.0.1:{port}", connect_s=LIMIT_S)
        )
        answer = gateway.ask("POST", CHAT, chat_body())
    assert (answer.status, _error(answer)["code"]) == (503, "connect_timeout")
    assert answer.headers["retry-after"] == "5"

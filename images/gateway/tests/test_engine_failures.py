"""When the engine fails, the client is told: never a success that is none."""

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from images.gateway.tests.pacing import paced_messages
from images.gateway.tests.support import (
    CHAT,
    GATEWAY_KEY,
    Gateway,
    chat_body,
    environment,
    eventually,
    running_gateway,
)
from paced_engine.running import running_engine

ERRORS = "gateway_upstream_errors_total"


@pytest.fixture
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{gateway.url}/v1", api_key=GATEWAY_KEY, max_retries=0, timeout=20
    ) as client:
        yield client


def _stream(client: openai.OpenAI, **paced: object) -> Iterator[str]:
    stream = client.chat.completions.create(
        model="paced",
        messages=paced_messages(**{"tick_s": 0.05, **paced}),
        stream=True,
    )
    with stream:
        for chunk in stream:
            yield (chunk.choices[0].delta.content or "").strip()


def test_the_openai_client_reads_a_whole_stream(client: openai.OpenAI) -> None:
    assert list(_stream(client, ticks=3)) == ["tick 0", "tick 1", "tick 2"]


def test_the_openai_client_reads_a_whole_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="paced",
        messages=paced_messages(tick_s=0.0, ticks=2),
    )
    assert answer.choices[0].message.content == "tick 0 tick 1"


def test_the_openai_client_raises_when_the_engine_is_cut_off_mid_stream(
    client: openai.OpenAI, gateway: Gateway
) -> None:
    before = gateway.metric(ERRORS, code="engine_cut_off")
    read: list[str] = []
    with pytest.raises(openai.APIError) as caught:
        read.extend(_stream(client, ticks=5, cut_at_tick=2))
    assert caught.value.code == "engine_cut_off"
    assert gateway.metric(ERRORS, code="engine_cut_off") == before + 1


def test_what_came_before_the_cut_is_kept_and_the_error_comes_last(gateway: Gateway) -> None:
    answer = gateway.ask("POST", CHAT, chat_body(ticks=5, tick_s=0.2, cut_at_tick=2))
    events = answer.body.decode().strip().split("\n\n")
    assert answer.status == 200
    assert ["tick 0" in events[0], "tick 1" in events[1]] == [True, True]
    assert len(events) == 3
    assert json.loads(events[2].removeprefix("data: ")) == {
        "error": {
            "message": "The engine's answer ended before it was complete.",
            "type": "server_error",
            "param": None,
            "code": "engine_cut_off",
        }
    }


def test_a_stream_that_ends_without_done_is_an_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError) as caught:
        list(_stream(client, ticks=2, says_done=False))
    assert caught.value.code == "engine_cut_off"


def test_an_error_after_half_an_event_is_an_event_of_its_own(gateway: Gateway) -> None:
    half = base64.b64encode(b'data: {"choices":[').decode()
    body = gateway.ask("POST", CHAT, chat_body(raw_b64=[half], tick_s=0.0)).body
    assert body.startswith(b'data: {"choices":[\n\ndata: {"error":{')


@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_cut_off_before_its_first_byte_is_502(
    gateway: Gateway,
    *,
    stream: bool,
) -> None:
    answer = gateway.ask("POST", CHAT, chat_body(stream=stream, cut_at_tick=0))
    assert (answer.status, answer.json()["error"]["code"]) == (502, "engine_cut_off")


def test_an_engine_cut_off_between_its_status_and_its_first_byte_is_502_too(
    gateway: Gateway,
) -> None:
    headers_only = chat_body(raw_b64=["", "eA=="], cut_at_tick=1)
    answer = gateway.ask("POST", CHAT, headers_only)
    assert (answer.status, answer.json()["error"]["code"]) == (502, "engine_cut_off")


def test_half_an_answer_is_502_and_not_half_an_answer(gateway: Gateway) -> None:
    answer = gateway.ask("POST", CHAT, chat_body(stream=False, tick_s=0.0, cut_at_tick=1))
    assert (answer.status, answer.json()["error"]["code"]) == (502, "engine_cut_off")


def test_an_engine_that_is_not_there_is_503_and_says_when_to_retry(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with running_gateway(environment(tmp_path, url)) as gateway:
        for method, path in (("POST", CHAT), ("GET", "/v1/models")):
            answer = gateway.ask(method, path, b'{"messages":[]}' if method == "POST" else None)
            assert (answer.status, answer.json()["error"]["code"]) == (503, "engine_unavailable")
            assert answer.headers["retry-after"] == "5"
        assert gateway.metric(ERRORS, code="engine_unavailable") == 2
        assert eventually(lambda: gateway.metric("gateway_requests_running") == 0)
        assert not gateway.ask("GET", "/readyz").json()["ready"]


def test_the_gateways_own_key_being_refused_is_not_blamed_on_the_client(tmp_path: Path) -> None:
    with (
        running_engine(api_key="another key") as engine,
        running_gateway(environment(tmp_path, engine.url)) as gateway,
    ):
        answer = gateway.ask("POST", CHAT, chat_body())
    assert (answer.status, answer.json()["error"]["code"]) == (502, "engine_refused_gateway")

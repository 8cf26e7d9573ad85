"""Who asks for a whole answer gets one, made of a stream: limits, leaving and the books see it so."""

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import openai
import pytest

from images.gateway.tests.dialect_support import DONE, USAGE, chunk
from images.gateway.tests.pacing import paced_messages, paced_words
from images.gateway.tests.support import (
    CHAT,
    GATEWAY_KEY,
    LONG_TICK_S,
    Answer,
    Gateway,
    chat_body,
    environment,
    eventually,
    new_id,
    policy_file,
    running_gateway,
)
from paced_engine.running import RunningEngine

TOKENS = "gateway_tokens_total"
OF_LOCAL = {"key_id": "local", "model": "default"}


@pytest.fixture
def splitting(engine: RunningEngine, tmp_path: Path) -> Iterator[Gateway]:
    policy = policy_file(tmp_path, model={"think": "split", "public": "chat"})
    with running_gateway(environment(tmp_path, engine.url, POLICY_FILE=policy)) as gateway:
        yield gateway


def _says(events: Sequence[bytes]) -> dict[str, object]:
    return {"tick_s": 0.0, "raw_b64": [base64.b64encode(event).decode() for event in events]}


def _ask(gateway: Gateway, path: str, events: Sequence[bytes], **fields: object) -> Answer:
    talk = paced_messages(**_says(events))
    asked = {"model": "chat", "messages": talk, "max_tokens": 9, "stream": False, **fields}
    return gateway.ask("POST", path, json.dumps(asked).encode())


def test_an_answer_is_put_together_under_its_alias_and_with_its_thinking_split(
    splitting: Gateway,
) -> None:
    events = [
        chunk({"role": "assistant", "content": None}),
        *(chunk({"content": text}) for text in ("<th", "ink>ask", "</think>\n\n", "北京")),
        chunk({}, "stop"),
        USAGE,
        DONE,
    ]
    answer = _ask(splitting, CHAT, events)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.headers["content-length"] == str(len(answer.body))
    assert "cache-control" not in answer.headers
    said = answer.json()
    assert (said["object"], said["model"]) == ("chat.completion", "chat")
    assert said["usage"]["completion_tokens"] == 5
    (choice,) = said["choices"]
    message = {"role": "assistant", "reasoning_content": "ask", "content": "北京"}
    assert choice == {"index": 0, "finish_reason": "stop", "message": message}
    assert "北京".encode() in answer.body

    blocks = _ask(splitting, "/v1/messages", events).json()["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text"]
    ollama = _ask(splitting, "/api/chat", events).json()
    assert ollama["message"] == {"role": "assistant", "content": "北京", "thinking": "ask"}
    assert (ollama["done"], ollama["eval_count"]) == (True, 5)


def test_of_the_streams_own_headers_none_is_left(gateway: Gateway) -> None:
    with gateway.chat(chat_body(stream=False, tick_s=0.0), new_id()) as client:
        client.read_until(b'"finish_reason":"stop"')
        head = client.received.partition(b"\r\n\r\n")[0]
    assert head.count(b"content-type: ") == 1
    assert b"event-stream" not in head


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (CHAT, lambda error: error["error"]["code"] == "engine_refused"),
        ("/v1/messages", lambda error: error["error"]["type"] == "api_error"),
        ("/api/chat", lambda error: error["error"].endswith("out of memory")),
    ],
)
def test_an_engine_that_fails_in_its_stream_is_a_status_in_the_callers_api(
    splitting: Gateway, path: str, said: object
) -> None:
    error = b'data: {"error":{"message":"out of memory","type":"server_error","code":500}}\n\n'
    answer = _ask(splitting, path, [chunk({"content": "half"}), error])
    assert answer.status == 500
    assert callable(said)
    assert said(answer.json())
    cut = _ask(splitting, path, [chunk({"content": "half"})])
    assert cut.status == 502
    assert b"half" not in cut.body


def test_what_was_generated_for_a_client_that_left_is_booked_as_wasted(
    gateway: Gateway, engine: RunningEngine
) -> None:
    before = gateway.metric(TOKENS, kind="wasted", **OF_LOCAL)
    begun = gateway.metric("gateway_first_byte_seconds_count", route=CHAT)
    request_id = new_id()
    client = gateway.chat(chat_body(stream=False, tick_s=LONG_TICK_S), request_id)
    # The gateway has it, and not only the engine sent it.
    assert eventually(
        lambda: gateway.metric("gateway_first_byte_seconds_count", route=CHAT) == begun + 1
    )

    client.leave()

    assert not engine.wait(request_id, until="ended")["ran_to_end"]
    assert eventually(lambda: gateway.metric(TOKENS, kind="wasted", **OF_LOCAL) == before + 1)


def test_what_the_engine_does_not_stream_is_asked_for_whole(
    gateway: Gateway, engine: RunningEngine
) -> None:
    request_id = new_id()
    body = chat_body(stream=False, streams=False, tick_s=0.0, ticks=2)
    answer = gateway.ask("POST", CHAT, body, {"x-request-id": request_id})
    assert answer.json()["choices"][0]["message"]["content"] == "tick 0 tick 1"
    asked = [
        json.loads(RunningEngine.body_of(seen))
        for seen in engine.seen()
        if seen["request_id"] == request_id
    ]
    assert [each["stream"] for each in asked] == [True, False]
    assert asked[1] == json.loads(body)
    # Who asks for a stream is told that there is none.
    assert gateway.ask("POST", CHAT, chat_body(streams=False)).status == 400


def test_a_refusal_for_any_other_reason_is_not_asked_for_again(
    gateway: Gateway, engine: RunningEngine
) -> None:
    request_id = new_id()
    body = chat_body(stream=False, status=400, **_says([b'{"error":{"message":"no"}}']))
    assert gateway.ask("POST", CHAT, body, {"x-request-id": request_id}).status == 400
    assert [seen["request_id"] for seen in engine.seen()].count(request_id) == 1


@pytest.mark.parametrize("asks", [{"best_of": 2}, {"stream": False}])
def test_only_what_can_be_streamed_is_asked_for_as_a_stream(
    engine: RunningEngine, tmp_path: Path, asks: dict[str, object]
) -> None:
    whole = {"capabilities": {"whole_as_stream": False}} if "stream" in asks else {}
    request_id = new_id()
    body = json.dumps({"prompt": paced_words(tick_s=0), **asks}).encode()
    env = environment(tmp_path, engine.url, POLICY_FILE=policy_file(tmp_path, **whole))
    with running_gateway(env) as gateway:
        answer = gateway.ask("POST", "/v1/completions", body, {"x-request-id": request_id})
    assert answer.status == 200
    assert RunningEngine.body_of(engine.wait(request_id, until="ended")) == body


def test_openais_client_gets_its_own_errors_for_an_engine_that_hangs(
    engine: RunningEngine, tmp_path: Path
) -> None:
    policy = policy_file(tmp_path, timeouts={"idle_s": 0.4})
    with (
        running_gateway(environment(tmp_path, engine.url, POLICY_FILE=policy)) as gateway,
        openai.OpenAI(
            base_url=f"{gateway.url}/v1", api_key=GATEWAY_KEY, max_retries=0, timeout=20
        ) as client,
        pytest.raises(openai.InternalServerError) as caught,
    ):
        client.chat.completions.create(
            model="paced",
            messages=paced_messages(tick_s=LONG_TICK_S),
        )
    assert (caught.value.status_code, caught.value.code) == (504, "idle_timeout")

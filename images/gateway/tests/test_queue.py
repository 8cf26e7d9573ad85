"""A wait that its client sees: comments, headers, the queue's own route. Against a real engine."""

import base64
import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from images.gateway.tests.pacing import paced_messages
from images.gateway.tests.shaping_support import TOKENIZER
from images.gateway.tests.support import (
    CHAT,
    GATEWAY_KEY,
    LONG_TICK_S,
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

QUEUE: dict[str, Any] = {"capacity": 1, "visible_after_s": 0.1, "visible_every_s": 0.1}
TOLD = {"system_message": "Be brief.", "sampling": {"temperature": 0.6}}
OTHER_KEY = "a-key-of-its-own"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def narrow(folder: Path, engine: RunningEngine, tmp_path: Path) -> Iterator[Gateway]:
    """One permit, and waits that show almost at once."""
    (folder / "policy.json").write_text(json.dumps({"queue": QUEUE}))
    sha256 = hashlib.sha256(OTHER_KEY.encode()).hexdigest()
    keys = {"keys": [{"id": "other", "name": "Other", "sha256": sha256}]}
    (folder / "keys.json").write_text(json.dumps(keys))
    env = environment(
        tmp_path,
        engine.url,
        POLICY_FILE=str(folder / "policy.json"),
        KEYS_FILE=str(folder / "keys.json"),
    )
    with running_gateway(env) as running:
        yield running


@pytest.fixture
def busy(narrow: Gateway, engine: RunningEngine) -> Iterator[Client]:
    """The client that has the one permit; when it leaves, the next one's turn has come."""
    request_id = new_id()
    with narrow.chat(chat_body(tick_s=LONG_TICK_S), request_id) as client:
        engine.wait(request_id, ticks=1)
        yield client


def _openai(gateway: Gateway) -> openai.OpenAI:
    return openai.OpenAI(base_url=gateway.url + "/v1", api_key=GATEWAY_KEY, max_retries=0)


def _is_queued(gateway: Gateway, request_id: str) -> bool:
    found = gateway.ask("GET", f"/v1/queue/{request_id}")
    return found.status == 200 and found.json()["state"] == "queued"


def test_a_stream_that_waits_gets_comments_and_then_its_answer(
    narrow: Gateway, busy: Client
) -> None:
    with narrow.chat(chat_body(ticks=2, tick_s=0), new_id()) as waiting:
        waiting.read_until(b": queue position=0")
        waiting.received, head = b"", waiting.received.split(b"\r\n\r\n")[0].lower()
        waiting.read_until(b": queue position=0")
        assert head.startswith(b"http/1.1 200")
        assert b"content-type: text/event-stream" in head
        assert b"x-queue-position: 0" in head
        busy.leave()
        waiting.read_until(b"data: [DONE]\n\n")


def _replaced(folder: Path, **parts: object) -> None:
    """As `up` puts another profile into force."""
    new = folder / "policy.new"
    new.write_text(json.dumps({"queue": QUEUE, **parts}))
    new.replace(folder / "policy.json")


def test_what_waited_is_asked_as_the_profile_wants_it_that_is_in_force_by_then(
    narrow: Gateway, busy: Client, engine: RunningEngine, folder: Path
) -> None:
    request_id = new_id()
    with narrow.chat(chat_body(ticks=1, tick_s=0), request_id) as waiting:
        waiting.read_until(b": queue position=0")
        _replaced(folder, model={"public": "paced", "engine": "another"}, defaults=TOLD)
        busy.leave()
        waiting.read_until(b"data: [DONE]\n\n")
    seen = json.loads(base64.b64decode(engine.wait(request_id, until="ended")["body_b64"]))
    assert seen["model"] == "another"
    assert seen["temperature"] == 0.6
    assert seen["messages"][0] == {"role": "system", "content": "Be brief."}


def test_what_waited_and_is_too_long_for_the_profile_in_force_by_then_is_told_so(
    narrow: Gateway, busy: Client, folder: Path
) -> None:
    asked = chat_body(ticks=1, tick_s=0), new_id()
    with narrow.chat(*asked) as stream:
        stream.read_until(b": queue position=0")
        _replaced(folder, model={"context_tokens": 4, "tokenizer_file": str(TOKENIZER)})
        busy.leave()
        stream.read_until(b"context_length_exceeded")
    # And its permit is free for the next.
    _replaced(folder)
    assert narrow.ask("POST", CHAT, chat_body(stream=False, tick_s=0)).status == 200


def test_openai_python_skips_the_comments(narrow: Gateway, busy: Client) -> None:
    client = _openai(narrow)
    stream = client.chat.completions.create(
        model="paced",
        messages=paced_messages(ticks=3, tick_s=0),
        stream=True,
    )
    # It returns with the head: the wait has shown by now, and every comment is still to be read.
    assert stream.response.headers["x-queue-position"] == "0"
    busy.leave()
    assert [chunk.choices[0].delta.content for chunk in stream] == [
        "tick 0",
        " tick 1",
        " tick 2",
    ]


def test_a_wait_without_stream_keeps_its_status_open(
    narrow: Gateway, busy: Client, engine: RunningEngine
) -> None:
    request_id = new_id()
    with narrow.chat(chat_body(stream=False, ticks=1, tick_s=0), request_id) as waiting:
        assert eventually(lambda: _is_queued(narrow, request_id))
        with narrow.chat(chat_body(ticks=1, tick_s=0), new_id()) as later:
            # By now the first one would have been told too, were it ever told.
            later.read_until(b": queue position=1")
        assert waiting.received == b""
        busy.leave()
        waiting.read_until(b"chat.completion")
        head = waiting.received.split(b"\r\n\r\n")[0].lower()
        assert b"content-type: application/json" in head
        assert b"x-queue-position: 0" in head


def test_the_engines_refusal_after_comments_is_an_event_that_openai_python_raises(
    narrow: Gateway, busy: Client
) -> None:
    stream = _openai(narrow).chat.completions.create(
        model="paced", messages=paced_messages(**{"no such": 1}), stream=True
    )
    busy.leave()
    with pytest.raises(openai.APIError) as caught:
        list(stream)
    assert caught.value.code == "engine_refused"


def test_a_wait_that_showed_and_was_too_long_ends_in_an_error_event(
    folder: Path, engine: RunningEngine, tmp_path: Path
) -> None:
    limits = {**QUEUE, "max_wait_s": 0.5}
    (folder / "policy.json").write_text(json.dumps({"queue": limits}))
    env = environment(tmp_path, engine.url, POLICY_FILE=str(folder / "policy.json"))
    with (
        running_gateway(env) as gateway,
        gateway.chat(chat_body(tick_s=LONG_TICK_S), held := new_id()),
    ):
        engine.wait(held, ticks=1)
        with gateway.chat(chat_body(), new_id()) as waiting:
            waiting.read_until(b": queue position=0")
            waiting.read_until(b'"code":"queue_timeout"')


def test_who_leaves_while_comments_are_sent_leaves_the_line(narrow: Gateway, busy: Client) -> None:
    request_id = new_id()
    with narrow.chat(chat_body(), request_id) as waiting:
        waiting.read_until(b": queue position=0")
    assert eventually(lambda: not _is_queued(narrow, request_id))
    busy.leave()
    assert narrow.ask("POST", CHAT, chat_body(stream=False, ticks=1, tick_s=0)).status == 200


def test_the_queue_shows_a_keys_own_requests_first_those_with_a_permit(
    narrow: Gateway, busy: Client
) -> None:
    with narrow.chat(chat_body(), "second"), narrow.chat(chat_body(), "third"):
        assert eventually(lambda: _is_queued(narrow, "second") and _is_queued(narrow, "third"))
        found = narrow.ask("GET", "/v1/queue").json()
        assert narrow.ask("GET", "/v1/queue", key=OTHER_KEY).json()["data"] == []
        assert narrow.ask("GET", "/v1/queue/second", key=OTHER_KEY).status == 404
    assert found["state"] == "open"
    running, *queued = found["data"]
    assert (running["state"], running["position"]) == ("running", None)
    assert sorted(place["position"] for place in queued) == [0, 1]
    assert {place["request_id"] for place in queued} == {"second", "third"}


def test_a_request_that_does_not_wait_is_not_in_the_queue(narrow: Gateway) -> None:
    answer = narrow.ask("GET", "/v1/queue/nothing")
    assert (answer.status, answer.json()["error"]["code"]) == (404, "request_not_queued")
    assert narrow.ask("GET", "/v1/queue", key=None).status == 401


def test_large_bodies_that_wait_are_bounded_together_and_small_ones_are_not_turned_away(
    engine: RunningEngine, tmp_path: Path
) -> None:
    large = chat_body(tick_s=0.0).ljust(2**20)
    policy = policy_file(tmp_path, queue={"capacity": 1})
    env = environment(
        tmp_path,
        engine.url,
        POLICY_FILE=policy,
        MAX_BODY_BYTES=str(2**21),
        MAX_BODIES_BYTES=str(5 * 2**19),
    )
    with running_gateway(env) as gateway:
        running = gateway.chat(chat_body(tick_s=LONG_TICK_S), new_id())
        running.read_until(b"tick 0")
        waiting = [gateway.chat(large, new_id()) for _ in range(2)]
        assert eventually(lambda: gateway.metric("gateway_requests_queued") == 2)

        refused = gateway.ask("POST", CHAT, large)
        small = gateway.chat(chat_body(tick_s=0.0), new_id())
        assert eventually(lambda: gateway.metric("gateway_requests_queued") == 3)
        running.leave()
        for client in (*waiting, small):
            with client:
                client.read_until(b"[DONE]")
        assert eventually(lambda: gateway.ask("POST", CHAT, large).status == 200)
    assert (refused.status, refused.json()["error"]["code"]) == (429, "queue_full")
    assert refused.headers["retry-after"] == "10"


def test_a_body_of_many_objects_counts_for_what_it_is_once_it_is_read(
    engine: RunningEngine, tmp_path: Path
) -> None:
    messages = [{"role": "user", "content": "x"}] * 20_000
    dense = json.dumps({"messages": messages}).encode()
    policy = policy_file(tmp_path, queue={"capacity": 1})
    env = environment(
        tmp_path,
        engine.url,
        POLICY_FILE=policy,
        MAX_BODY_BYTES="1000000",
        MAX_BODIES_BYTES="2500000",
    )
    with running_gateway(env) as gateway:
        running = gateway.chat(chat_body(tick_s=LONG_TICK_S), new_id())
        running.read_until(b"tick 0")
        waiting = gateway.chat(dense, new_id())
        assert eventually(lambda: gateway.metric("gateway_requests_queued") == 1)
        assert len(dense) * 3 < 2_500_000
        assert gateway.ask("POST", CHAT, dense).json()["error"]["code"] == "queue_full"
        waiting.leave()
        running.leave()

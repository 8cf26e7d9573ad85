"""A permit is free when the engine is idle, not when the gateway has stopped listening to it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from images.gateway.tests.support import (
    CHAT,
    LONG_TICK_S,
    Gateway,
    chat_body,
    environment,
    new_id,
    policy_file,
    running_gateway,
)
from paced_engine.running import RunningEngine


@contextmanager
def _one_at_a_time(tmp_path: Path, url: str, **capabilities: object) -> Iterator[Gateway]:
    policy = policy_file(tmp_path, queue={"capacity": 1}, capabilities=capabilities)
    with running_gateway(environment(tmp_path, url, POLICY_FILE=policy)) as gateway:
        yield gateway


def test_an_engine_that_goes_on_is_aborted_by_id_before_the_next_request_reaches_it(
    engine: RunningEngine, tmp_path: Path
) -> None:
    leaving_id, next_id = new_id(), new_id()
    with _one_at_a_time(tmp_path, engine.url, abort_path="/abort_request") as gateway:
        client = gateway.chat(chat_body(tick_s=LONG_TICK_S, ignores_leaving=True), leaving_id)
        client.read_until(b"tick 0")

        client.leave()
        answer = gateway.ask("POST", CHAT, chat_body(tick_s=0.0), {"x-request-id": next_id})

    assert answer.body.endswith(b"data: [DONE]\n\n")
    left = engine.wait(leaving_id, until="ended")
    assert (left["aborted"], left["ran_to_end"]) == (True, False)
    assert engine.wait(next_id, until="ended")["beside"] == 0


def test_an_engine_that_takes_no_aborts_is_given_its_grace(
    engine: RunningEngine, tmp_path: Path
) -> None:
    leaving_id, next_id = new_id(), new_id()
    with _one_at_a_time(tmp_path, engine.url, abort_grace_s=2) as gateway:
        client = gateway.chat(chat_body(tick_s=0.1, ticks=10, ignores_leaving=True), leaving_id)
        client.read_until(b"tick 0")

        client.leave()
        gateway.ask("POST", CHAT, chat_body(tick_s=0.0), {"x-request-id": next_id})

    assert engine.wait(leaving_id, until="ended")["ran_to_end"]
    assert engine.wait(next_id, until="ended")["beside"] == 0


def test_an_abort_that_the_engine_does_not_know_leaves_the_grace(
    engine: RunningEngine, tmp_path: Path
) -> None:
    leaving_id, next_id = new_id(), new_id()
    with _one_at_a_time(
        tmp_path, engine.url, abort_path="/no_such_thing", abort_grace_s=2
    ) as gateway:
        client = gateway.chat(chat_body(tick_s=0.1, ticks=10, ignores_leaving=True), leaving_id)
        client.read_until(b"tick 0")
        client.leave()
        gateway.ask("POST", CHAT, chat_body(tick_s=0.0), {"x-request-id": next_id})
    assert engine.wait(next_id, until="ended")["beside"] == 0


def test_a_client_can_name_no_ones_request_but_its_own(
    engine: RunningEngine, tmp_path: Path
) -> None:
    """Its request id is not what the engine would abort by, and an id for that it may not give."""
    plain_id, forging_id = new_id(), new_id()
    with _one_at_a_time(tmp_path, engine.url, abort_path="/abort_request") as gateway:
        body = chat_body(tick_s=0.0)
        gateway.ask("POST", CHAT, body, {"x-request-id": plain_id})
        forged = b'{"rid": "",' + body[1:]
        refused = gateway.ask("POST", CHAT, forged, {"x-request-id": forging_id})
    engine_id = engine.wait(plain_id, until="ended")["engine_id"]
    assert len(engine_id) == 32
    assert engine_id != plain_id
    assert refused.json()["error"]["param"] == "rid"
    assert forging_id not in {seen["request_id"] for seen in engine.seen()}


def test_the_id_is_all_that_is_added_to_a_clients_bytes(
    engine: RunningEngine, tmp_path: Path
) -> None:
    request_id = new_id()
    body = '{"messages" : [ ],  "stop":"Zoë \\u00e9 😀" }\n'.encode()
    with _one_at_a_time(tmp_path, engine.url, abort_path="/abort_request") as gateway:
        assert gateway.ask("POST", CHAT, body, {"x-request-id": request_id}).status == 200
    seen = engine.wait(request_id, until="ended")
    sent = engine.body_of(seen)
    assert sent.startswith(body.rstrip()[:-1].rstrip())
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    assert json.loads(sent) == {**json.loads(body), **asked, "rid": seen["engine_id"]}


def test_a_stop_does_not_wait_for_the_grace_beyond_the_drain(
    engine: RunningEngine, tmp_path: Path
) -> None:
    policy = policy_file(tmp_path, capabilities={"abort_grace_s": 1000})
    env = environment(tmp_path, engine.url, POLICY_FILE=policy, DRAIN_S="0")
    with running_gateway(env) as gateway:
        client = gateway.chat(chat_body(tick_s=LONG_TICK_S), request_id := new_id())
        client.read_until(b"tick 0")
        client.leave()
        engine.wait(request_id, until="ended")
        assert gateway.stop() == 0
        assert "Traceback" not in "".join(gateway.log)

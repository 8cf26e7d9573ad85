"""A client that leaves takes its request with it, in every phase."""

import threading

from images.gateway.tests.support import (
    CHAT,
    LONG_TICK_S,
    Client,
    Gateway,
    chat_body,
    chat_head,
    eventually,
    new_id,
)
from paced_engine.running import RunningEngine

CANCELLED = "gateway_requests_cancelled_total"


def test_leaving_before_the_first_token_stops_the_engine(
    gateway: Gateway, engine: RunningEngine
) -> None:
    before = gateway.metric(CANCELLED, phase="waiting")
    request_id = new_id()
    client = gateway.chat(chat_body(prefill_s=LONG_TICK_S), request_id)
    engine.wait(request_id, until="started")

    client.leave()

    seen = engine.wait(request_id, until="ended")
    assert (seen["closed_at_tick"], seen["ran_to_end"]) == (0, False)
    assert eventually(lambda: gateway.metric(CANCELLED, phase="waiting") == before + 1)


def test_leaving_mid_stream_stops_the_engine_before_its_next_tick(
    gateway: Gateway, engine: RunningEngine
) -> None:
    before = gateway.metric(CANCELLED, phase="streaming")
    request_id = new_id()
    client = gateway.chat(chat_body(tick_s=LONG_TICK_S), request_id)
    client.read_until(b"tick 0")

    client.leave()

    seen = engine.wait(request_id, until="ended")
    assert (seen["closed_at_tick"], seen["ran_to_end"]) == (1, False)
    assert eventually(lambda: gateway.metric(CANCELLED, phase="streaming") == before + 1)


def test_leaving_a_request_without_stream_stops_the_engine_before_its_next_tick(
    gateway: Gateway, engine: RunningEngine
) -> None:
    request_id = new_id()
    client = gateway.chat(chat_body(stream=False, tick_s=LONG_TICK_S), request_id)
    engine.wait(request_id, ticks=1)

    client.leave()

    seen = engine.wait(request_id, until="ended")
    assert (seen["closed_at_tick"], seen["ran_to_end"]) == (1, False)


def test_leaving_while_uploading_never_reaches_the_engine(
    gateway: Gateway, engine: RunningEngine
) -> None:
    before = gateway.metric(CANCELLED, phase="uploading")
    request_id = new_id()
    client = Client(gateway.port)
    client.send(chat_head(1000, request_id) + b'{"messages": [')

    client.leave()

    assert eventually(lambda: gateway.metric(CANCELLED, phase="uploading") == before + 1)
    assert request_id not in {seen["request_id"] for seen in engine.seen()}


def test_an_answer_that_was_read_to_its_end_is_not_taken_for_a_client_that_left(
    gateway: Gateway, engine: RunningEngine
) -> None:
    phases = ("uploading", "waiting", "streaming")
    before = [gateway.metric(CANCELLED, phase=phase) for phase in phases]
    with Client(gateway.port) as client:
        for stream in (True, False, True):
            request_id = new_id()
            body = chat_body(stream=stream, tick_s=0.0, ticks=2)
            client.send(chat_head(len(body), request_id) + body)
            client.read_until(b"[DONE]" if stream else b'"finish_reason": "stop"')
            assert engine.wait(request_id, until="ended")["ran_to_end"]
            client.received = b""
    assert eventually(lambda: gateway.metric("gateway_requests_running") == 0)
    assert [gateway.metric(CANCELLED, phase=phase) for phase in phases] == before


def test_a_hundred_cancelled_requests_leak_nothing(gateway: Gateway, engine: RunningEngine) -> None:
    def open_files() -> float:
        return gateway.metric("process_open_fds")

    gateway.ask("GET", "/v1/models")
    files_before = open_files()
    for number in range(100):
        request_id = new_id()
        if number % 3 == 0:
            body, ticks = chat_body(prefill_s=LONG_TICK_S), 0
        else:
            body, ticks = chat_body(stream=number % 3 == 1, tick_s=LONG_TICK_S), 1
        client = gateway.chat(body, request_id)
        engine.wait(request_id, ticks=ticks)
        client.leave()
        assert not engine.wait(request_id, until="ended")["ran_to_end"]

    assert eventually(lambda: gateway.metric("gateway_requests_running") == 0)
    assert eventually(lambda: open_files() <= files_before)
    assert gateway.ask("POST", CHAT, chat_body(stream=False, tick_s=0.0)).status == 200


def test_a_slow_reader_slows_the_engine_instead_of_filling_the_gateway(
    gateway: Gateway, engine: RunningEngine
) -> None:
    slow_id, fast_id = new_id(), new_id()
    body = chat_body(tick_s=0.0, ticks=400, pad_bytes=2**18)  # 100 MiB
    with gateway.chat(body, slow_id) as slow:
        engine.wait(slow_id, ticks=1)

        # The same answer read at full speed is the clock: unpaced, the slow one would be over too.
        fast = gateway.ask("POST", CHAT, body, {"x-request-id": fast_id})
        assert fast.body.endswith(b"data: [DONE]\n\n")

        assert not engine.wait(slow_id)["ran_to_end"]
        assert gateway.metric("process_resident_memory_bytes") < 200e6
        slow.read_until(b"tick 0")
    assert not engine.wait(slow_id, until="ended")["ran_to_end"]


def test_many_streams_at_once_are_cancelled_one_by_one(
    gateway: Gateway, engine: RunningEngine
) -> None:
    leaving_id, staying_ids = new_id(), [new_id() for _ in range(8)]
    answers: dict[str, bytes] = {}

    def stay(request_id: str) -> None:
        headers = {"x-request-id": request_id}
        answers[request_id] = gateway.ask("POST", CHAT, chat_body(ticks=5), headers).body

    stayers = [threading.Thread(target=stay, args=(request_id,)) for request_id in staying_ids]
    client = gateway.chat(chat_body(tick_s=LONG_TICK_S), leaving_id)
    client.read_until(b"tick 0")
    for stayer in stayers:
        stayer.start()
    client.leave()
    assert not engine.wait(leaving_id, until="ended")["ran_to_end"]
    for stayer in stayers:
        stayer.join(20)
    assert all(answers[request_id].endswith(b"data: [DONE]\n\n") for request_id in staying_ids)

"""A client that leaves takes its request with it, in every phase."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Barrier

import pytest
from pydantic import AnyHttpUrl
from starlette.types import Message

from gateway.app import create_app
from gateway.door import Door
from gateway.settings import Settings
from images.gateway.tests.support import (
    CHAT,
    GATEWAY_KEY,
    LONG_TICK_S,
    Client,
    Gateway,
    chat_body,
    chat_head,
    environment,
    eventually,
    new_id,
    policy_file,
    running_gateway,
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


def test_leaving_is_seen_after_a_body_that_stopped_the_reading(
    gateway: Gateway, engine: RunningEngine
) -> None:
    request_id = new_id()
    # Beyond the size from which the server reads no more until the body is taken.
    body = chat_body(prefill_s=LONG_TICK_S).replace(b'"model"', b" " * 2**20 + b'"model"', 1)
    client = gateway.chat(body, request_id)
    engine.wait(request_id, until="started")

    client.leave()

    seen = engine.wait(request_id, until="ended")
    assert (seen["closed_at_tick"], seen["ran_to_end"]) == (0, False)


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


@pytest.mark.parametrize("stream", [False, True])
def test_leaving_with_a_next_request_already_sent_stops_the_engine_too(
    gateway: Gateway, engine: RunningEngine, *, stream: bool
) -> None:
    request_id = new_id()
    client = gateway.chat(chat_body(stream=stream, prefill_s=LONG_TICK_S), request_id)
    engine.wait(request_id, until="started")
    client.send(b"GET /healthz HTTP/1.1\r\nhost: g\r\n\r\n")

    client.leave()

    assert not engine.wait(request_id, until="ended")["ran_to_end"]


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
            client.read_until(b"[DONE]" if stream else b'"finish_reason":"stop"')
            assert engine.wait(request_id, until="ended")["ran_to_end"]
            client.received = b""
    assert eventually(lambda: gateway.metric("gateway_requests_running") == 0)
    assert [gateway.metric(CANCELLED, phase=phase) for phase in phases] == before


def test_leaving_the_line_never_reaches_the_engine_and_lets_the_next_one_move_up(
    engine: RunningEngine, tmp_path: Path
) -> None:
    running_id, leaving_id, next_id = new_id(), new_id(), new_id()
    with _one_at_a_time(tmp_path, engine) as gateway:
        running = gateway.chat(chat_body(tick_s=LONG_TICK_S), running_id)
        running.read_until(b"tick 0")
        leaving = gateway.chat(chat_body(tick_s=0.0), leaving_id)
        assert eventually(lambda: gateway.metric("gateway_requests_queued") == 1)
        staying = gateway.chat(chat_body(tick_s=0.0), next_id)
        assert eventually(lambda: gateway.metric("gateway_requests_queued") == 2)

        leaving.leave()
        assert eventually(lambda: gateway.metric(CANCELLED, phase="queued") == 1)
        assert gateway.metric("gateway_requests_queued") == 1
        running.leave()
        with staying:
            staying.read_until(b"[DONE]")

    assert leaving_id not in {seen["request_id"] for seen in engine.seen()}
    seen = engine.wait(running_id, until="ended")
    assert (seen["closed_at_tick"], seen["ran_to_end"]) == (1, False)


@contextmanager
def _one_at_a_time(tmp_path: Path, engine: RunningEngine) -> Iterator[Gateway]:
    policy = policy_file(tmp_path, queue={"capacity": 1})
    with running_gateway(environment(tmp_path, engine.url, POLICY_FILE=policy)) as gateway:
        yield gateway


def test_the_watch_on_a_client_ends_with_its_request(tmp_path: Path) -> None:
    """Also where the server never says that the client has gone."""

    async def scene() -> tuple[set[str], int]:
        settings = Settings(
            upstream_url=AnyHttpUrl("http://127.0.0.1:1"),
            upstream_key_file=tmp_path / "key",
            api_key_file=tmp_path / "key",
        )
        app = create_app(
            settings, Door(most=9, most_strangers=9, most_of_key=9, now_s=time.monotonic)
        )
        body = iter([chat_body()])
        never = asyncio.Event()
        sent: list[Message] = []

        async def receive() -> Message:
            if (rest := next(body, None)) is None:
                await never.wait()
            return {"type": "http.request", "body": rest, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        key = (b"authorization", f"Bearer {GATEWAY_KEY}".encode())
        scope = {"type": "http", "method": "POST", "path": CHAT, "headers": [key]}
        await app(scope, receive, send)
        await asyncio.sleep(0)
        return {message["type"] for message in sent}, len(asyncio.all_tasks())

    (tmp_path / "key").write_text(GATEWAY_KEY)
    types, tasks = asyncio.run(scene())
    assert types == {"http.response.start", "http.response.body"}
    assert tasks == 1


DEATHS = 500
CAPACITY = 4


def test_five_hundred_clients_that_die_at_random_leave_nothing_behind(
    engine: RunningEngine, tmp_path: Path
) -> None:
    """In every phase, with more of them at once than permits, cleanly and by reset."""
    policy = policy_file(
        tmp_path, queue={"capacity": CAPACITY, "max_queued": 100, "max_queued_per_key": 100}
    )
    random = Random(5)  # noqa: S311 - the same deaths every time
    ids = [new_id() for _ in range(DEATHS)]
    with running_gateway(environment(tmp_path, engine.url, POLICY_FILE=policy)) as gateway:
        gateway.ask("GET", "/v1/models")
        files_before = gateway.metric("process_open_fds")
        tasks_before = gateway.metric("gateway_tasks")
        alive: list[Client] = []
        for request_id in ids:
            body = chat_body(
                stream=random.random() < 0.7,
                prefill_s=random.choice([0.0, 0.0, LONG_TICK_S]),
                tick_s=random.choice([0.0, 0.01, LONG_TICK_S]),
                ticks=20,
            )
            client = Client(gateway.port)
            message = chat_head(len(body), request_id) + body
            client.send(message[: random.choice([random.randrange(len(message)), None, None])])
            alive.append(client)
            # The clock is a request that takes the same way.
            for _ in range(random.randrange(3)):
                gateway.ask("GET", "/v1/models")
            # The larger the crowd, the more of them wait in the line.
            while len(alive) > random.randrange(20):
                alive.pop(random.randrange(len(alive))).die(random.choice([True, False]))
        for client in alive:
            client.die(reset=True)

        assert eventually(lambda: gateway.metric("gateway_requests_running") == 0)
        assert gateway.metric("gateway_requests_queued") == 0
        phases = ("uploading", "queued", "waiting", "streaming")
        assert all(gateway.metric(CANCELLED, phase=phase) > 10 for phase in phases)
        assert eventually(lambda: gateway.metric("process_open_fds") <= files_before)
        assert eventually(lambda: gateway.metric("gateway_tasks") <= tasks_before)
        # A permit that was lost would be missed now: so many at once, and each is answered.
        together = Barrier(CAPACITY)
        assert _answered_together(gateway, together) == [200] * CAPACITY
        assert "Traceback" not in "".join(gateway.log)
        assert gateway.stop() == 0
    died = [seen for seen in engine.seen() if seen["request_id"] in ids]
    assert len(died) > DEATHS / 10
    assert all(seen["ended"] for seen in died)


def _answered_together(gateway: Gateway, together: Barrier) -> list[int]:
    def ask() -> None:
        with gateway.chat(chat_body(tick_s=LONG_TICK_S), new_id()) as client:
            client.read_until(b"tick 0")
            # Not before all of them have a permit.
            together.wait(timeout=20)
            statuses.append(int(client.received.split()[1]))

    statuses: list[int] = []
    threads = [threading.Thread(target=ask) for _ in range(together.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return statuses


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

"""kill -9 of the engine: who listened is told, and who waits keeps the place it has."""

import asyncio
import base64
import http.client
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from gateway.admission.fair import FairCore
from gateway.admission.line import Line
from gateway.admission.tickets import Hold
from gateway.engine_watch import EngineWatch
from gateway.policy import Queue
from gateway.upstream import Engine
from images.gateway.tests.asking import Asking
from images.gateway.tests.support import (
    CHAT,
    ENGINE_KEY,
    LONG_TICK_S,
    Gateway,
    chat_body,
    environment,
    eventually,
    new_id,
    policy_file,
    running_gateway,
)
from paced_engine.running import RunningEngine

PACED_ENGINE = Path(__file__).parents[3] / "tests"


class Killable:
    """A paced engine in a process of its own, always on the same port."""

    def __init__(self, tmp_path: Path) -> None:
        self._key_file = tmp_path / "engine-key"
        self._key_file.write_text(ENGINE_KEY)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.seen = RunningEngine(free.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "paced_engine", "--host=127.0.0.1", f"--port={self.seen.port}"],
            env={"PYTHONPATH": str(PACED_ENGINE), "API_KEY_FILE": str(self._key_file)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert eventually(self._is_up, within_s=30)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _is_up(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.seen.port, timeout=10)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[Killable]:
    engine = Killable(tmp_path)
    engine.start()
    yield engine
    engine.kill()


def _holding(tmp_path: Path, killable: Killable, **queue: object) -> dict[str, str]:
    policy = policy_file(tmp_path, queue={"capacity": 1, "hold_on_engine_loss": True, **queue})
    return environment(tmp_path, killable.seen.url, POLICY_FILE=policy)


def _queue_of(gateway: Gateway, number: int) -> Callable[[], bool]:
    return lambda: gateway.metric("gateway_requests_queued") == number


def test_a_killed_engine_ends_a_stream_with_an_error_and_the_line_waits_for_it_in_order(
    killable: Killable, tmp_path: Path
) -> None:
    ids = [new_id() for _ in range(3)]
    with running_gateway(_holding(tmp_path, killable)) as gateway:
        with gateway.chat(chat_body(tick_s=LONG_TICK_S), new_id()) as streaming:
            streaming.read_until(b"tick 0")
            waiting = []
            for number, request_id in enumerate(ids, start=1):
                waiting.append(Asking(gateway, request_id))
                assert eventually(_queue_of(gateway, number))

            killable.kill()
            streaming.read_until(b'"code":"engine_cut_off"')
        assert b"[DONE]" not in streaming.received
        # The first of them may have been sent to the dead engine: all three wait, or wait again.
        assert eventually(_queue_of(gateway, 3))

        killable.start()
        assert [asking.ended().status for asking in waiting] == [200, 200, 200]
    order = [seen["request_id"] for seen in killable.seen.seen() if seen["path"] == CHAT]
    assert order == ids


def test_a_request_that_the_engine_died_with_before_its_first_byte_is_asked_again(
    killable: Killable, tmp_path: Path
) -> None:
    request_id = new_id()
    with running_gateway(_holding(tmp_path, killable)) as gateway:
        asking = Asking(gateway, request_id, prefill_s=1.0)
        killable.seen.wait(request_id)
        killable.kill()
        killable.start()
        assert asking.ended().status == 200
        assert eventually(lambda: gateway.metric("gateway_requests_running") == 0)


def test_a_request_that_kills_the_engine_twice_is_not_sent_a_third_time(
    killable: Killable, tmp_path: Path
) -> None:
    request_id = new_id()
    with running_gateway(_holding(tmp_path, killable)) as gateway:
        answer = gateway.ask("POST", CHAT, chat_body(cut_at_tick=0), {"x-request-id": request_id})
        sent = [seen for seen in killable.seen.seen() if seen["request_id"] == request_id]
    assert (answer.status, answer.json()["error"]["code"]) == (502, "engine_cut_off")
    assert len(sent) == 2


def test_an_engine_that_is_busy_is_asked_until_the_longest_wait_is_over(
    killable: Killable, tmp_path: Path
) -> None:
    """As kt-legacy is, one request at a time, while it still works for who asked it directly."""
    request_id = new_id()
    with running_gateway(_holding(tmp_path, killable, max_wait_s=4)) as gateway:
        answer = gateway.ask(
            "POST", CHAT, chat_body(status=503, stream=False), {"x-request-id": request_id}
        )
        sent = [seen for seen in killable.seen.seen() if seen["request_id"] == request_id]
    assert (answer.status, answer.json()["error"]["code"]) == (503, "model_on_hold")
    assert len(sent) > 2


def test_who_waits_for_a_lost_engine_longer_than_the_longest_wait_is_told_why(
    killable: Killable, tmp_path: Path
) -> None:
    killable.kill()
    with running_gateway(_holding(tmp_path, killable, max_wait_s=1.5)) as gateway:
        answer = gateway.ask("POST", CHAT, chat_body())
        assert gateway.metric("gateway_requests_queued") == 0
        assert gateway.metric("gateway_requests_running") == 0
    error = answer.json()["error"]
    assert (answer.status, error["code"]) == (503, "model_on_hold")
    assert error["message"].startswith("The model is restarting.")
    assert 1 <= int(answer.headers["retry-after"]) <= 120


def test_the_line_is_held_the_moment_the_engine_is_lost() -> None:
    """Not when the first look at it has failed: the next in line would be sent to it meanwhile."""

    async def scene() -> object:
        line = Line(FairCore(Queue()), asyncio.get_running_loop().time)
        engine = Engine("http://127.0.0.1:1", SecretStr("key"))
        watch = EngineWatch(engine, line)
        watch.lost()
        at_once = line.snapshot().state
        await watch.close()
        engine.close()
        return at_once

    assert isinstance(asyncio.run(scene()), Hold)


def test_a_stop_while_the_engine_is_away_does_not_ask_it_again_and_again(
    killable: Killable, tmp_path: Path
) -> None:
    killable.kill()
    with running_gateway({**_holding(tmp_path, killable), "DRAIN_S": "1"}) as gateway:
        waiting = Asking(gateway, new_id())
        assert eventually(_queue_of(gateway, 1))
        assert gateway.stop() == 0
        answer = waiting.ended()
        log = "".join(gateway.log)
    assert (answer.status, answer.json()["error"]["code"]) == (503, "shutting_down")
    assert log.count("waits again") == 1


def test_a_stop_waits_for_an_engine_that_comes_back_in_time(
    killable: Killable, tmp_path: Path
) -> None:
    killable.kill()
    with running_gateway(_holding(tmp_path, killable)) as gateway:
        waiting = Asking(gateway, new_id())
        assert eventually(_queue_of(gateway, 1))
        gateway.process.terminate()
        assert eventually(lambda: gateway.ask("GET", "/readyz").status == 503)
        killable.start()
        assert waiting.ended().status == 200
        assert gateway.exit_code() == 0


def test_who_leaves_while_the_engine_is_away_is_not_asked_for_when_it_is_back(
    killable: Killable, tmp_path: Path
) -> None:
    leaving_id, staying_id = new_id(), new_id()
    killable.kill()
    with running_gateway(_holding(tmp_path, killable)) as gateway:
        client = gateway.chat(chat_body(), leaving_id)
        assert eventually(lambda: gateway.metric("gateway_requests_queued") == 1)
        client.leave()
        assert eventually(
            lambda: gateway.metric("gateway_requests_cancelled_total", phase="queued") == 1
        )
        staying = Asking(gateway, staying_id)
        killable.start()
        assert staying.ended().status == 200
    asked = {seen["request_id"] for seen in killable.seen.seen()}
    assert staying_id in asked
    assert leaving_id not in asked


@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_whose_own_line_is_full_is_503_also_where_it_hides_that_in_a_200(
    gateway: Gateway, *, stream: bool
) -> None:
    busy = b'data: {"error": {"message": "The request queue is full.", "code": 503}}\n\n'
    paced = {"raw_b64": [base64.b64encode(busy).decode()]} if stream else {"status": 503}
    answer = gateway.ask("POST", CHAT, chat_body(stream=stream, tick_s=0.0, **paced))
    assert (answer.status, answer.json()["error"]["code"]) == (503, "engine_busy")
    assert answer.headers["retry-after"] == "5"


@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_that_gives_up_by_itself_is_no_408_which_clients_would_send_again(
    gateway: Gateway, *, stream: bool
) -> None:
    answer = gateway.ask("POST", CHAT, chat_body(stream=stream, status=408))
    assert (answer.status, answer.json()["error"]["code"]) == (504, "engine_refused")


def test_a_refusal_that_an_engine_hides_in_a_stream_gets_its_status_back(gateway: Gateway) -> None:
    hidden = b'data: {"error": {"message": "The input is too long.", "code": 400}}\n\n'
    raw = [base64.b64encode(hidden).decode()]
    answer = gateway.ask("POST", CHAT, chat_body(raw_b64=raw, tick_s=0.0))
    assert (answer.status, answer.json()["error"]["code"]) == (400, "engine_refused")
    assert "The input is too long." in answer.json()["error"]["message"]

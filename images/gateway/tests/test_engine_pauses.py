"""An engine that says it is well and is lost again and again is asked less and less often."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import SecretStr

from gateway.admission.fair import FairCore
from gateway.admission.line import Line
from gateway.admission.tickets import Open
from gateway.engine_watch import EngineWatch
from gateway.policy import Queue
from gateway.upstream import Engine
from images.gateway.tests.asking import Asking
from images.gateway.tests.support import (
    CHAT,
    Gateway,
    chat_body,
    environment,
    eventually,
    new_id,
    policy_file,
    running_gateway,
)
from paced_engine.running import RunningEngine


class WellEngine(Engine):
    """Its /health is always good."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", SecretStr("key"))

    @asynccontextmanager
    async def ask(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(status=200)


def _pauses(*losses: str, spread: float) -> list[float]:
    """What is waited for, after each of `losses` and `answers`, before the line goes on."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def scene() -> None:
        line = Line(FairCore(Queue()), asyncio.get_running_loop().time)
        watch = EngineWatch(WellEngine(), line, sleep=sleep, spread=lambda: spread)
        for what in losses:
            if what == "answer":
                watch.answered()
                continue
            watch.lost()
            assert watch._watching is not None
            await watch._watching
            assert isinstance(line.snapshot().state, Open)
        await watch.close()

    asyncio.run(scene())
    return slept


def _queue_of(gateway: Gateway, number: int) -> Callable[[], bool]:
    return lambda: gateway.metric("gateway_requests_queued") == number


def test_each_loss_in_a_row_doubles_the_pause_up_to_half_a_minute() -> None:
    assert _pauses(*["loss"] * 9, spread=0.0) == [1, 2, 4, 8, 16, 30, 30, 30]


def test_the_spread_takes_off_up_to_half() -> None:
    assert _pauses(*["loss"] * 4, spread=1.0) == [0.5, 1, 2]


def test_an_answer_between_two_losses_ends_the_row() -> None:
    assert _pauses("loss", "loss", "answer", "loss", "loss", spread=0.0) == [1, 1]


def test_an_engine_that_breaks_every_request_is_not_run_down_by_those_who_wait(
    engine: RunningEngine, tmp_path: Path
) -> None:
    """Twice each and at once without a pause; the pauses alone would take half a minute."""
    queue = {"capacity": 1, "hold_on_engine_loss": True, "max_wait_s": 3}
    policy = policy_file(tmp_path, queue=queue)
    ids = [new_id() for _ in range(4)]
    with running_gateway(environment(tmp_path, engine.url, POLICY_FILE=policy)) as gateway:
        waiting = [Asking(gateway, request_id, cut_at_tick=0) for request_id in ids]
        answers = [asking.ended() for asking in waiting]
        codes = sorted(answer.json()["error"]["code"] for answer in answers)
        assert set(codes) == {"engine_cut_off", "model_on_hold"}
        assert codes[-1] == "model_on_hold"
        asked = [seen for seen in engine.seen() if seen["request_id"] in ids]
        assert 2 <= len(asked) < 2 * len(ids)
        held = next(answer for answer in answers if answer.status == 503)
        assert held.json()["error"]["message"].startswith(
            "The model is restarting. The engine was lost"
        )
        # It is asked again all the same, and what it answers ends the row.
        assert eventually(lambda: gateway.ask("POST", CHAT, chat_body()).status == 200, within_s=30)


def test_who_waits_through_a_pause_keeps_its_place(engine: RunningEngine, tmp_path: Path) -> None:
    queue = {"capacity": 1, "hold_on_engine_loss": True}
    breaking, *rest = ids = [new_id() for _ in range(3)]
    policy = policy_file(tmp_path, queue=queue)
    with running_gateway(environment(tmp_path, engine.url, POLICY_FILE=policy)) as gateway:
        first = Asking(gateway, breaking, cut_at_tick=0, prefill_s=0.5)
        engine.wait(breaking)
        others = []
        for number, request_id in enumerate(rest, start=1):
            others.append(Asking(gateway, request_id))
            assert eventually(_queue_of(gateway, number))
        assert first.ended().status == 502
        assert [other.ended().status for other in others] == [200, 200]
    order = [seen["request_id"] for seen in engine.seen() if seen["request_id"] in ids]
    assert order == [breaking, breaking, *rest]

"""The line: who goes when, who is turned away, and that no permit is lost."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

import pytest

from gateway.admission.fair import FairCore
from gateway.admission.line import Line, Permit
from gateway.admission.tickets import Drain, Hold, Open, Spent, Ticket
from gateway.caller import Limits
from gateway.errors import Refused
from gateway.policy import Queue
from gateway.usage import Usage

T = TypeVar("T")
SPENT = Spent(usage=Usage(), outcome="finished")


def _ticket(number: int, key_id: str = "a", limits: Limits | None = None) -> Ticket:
    return Ticket(
        number=number,
        request_id=f"request-{number}",
        key_id=key_id,
        key_class="interactive",
        limits=limits or Limits(),
        prompt_tokens_estimate=10,
        max_tokens_cap=10,
    )


def _core(*numbers: int, limits: Queue) -> FairCore:
    core = FairCore(limits)
    for number in numbers:
        assert core.enqueue(_ticket(number), 0.0) is None
    return core


ONE = Queue(capacity=1, max_queued=2, max_queued_per_key=2, max_wait_s=10)


def _changed(queue: Queue, **changes: object) -> Queue:
    return Queue.model_validate({**queue.model_dump(), **changes})


def test_first_come_first_served_and_never_more_than_the_capacity() -> None:
    core = _core(1, 2, 3, limits=_changed(ONE, max_queued=3, max_queued_per_key=3))
    assert core.dispatch(0) == [1]
    assert core.dispatch(0) == []
    core.finish(1, SPENT, 1)
    assert core.dispatch(1) == [2]
    core.set_capacity(2)
    assert core.dispatch(1) == [3]


def test_a_full_line_turns_away_and_one_key_can_not_fill_it_alone() -> None:
    core = _core(1, limits=_changed(ONE, max_queued_per_key=1))
    core.dispatch(0)
    assert core.enqueue(_ticket(2), 0) is None
    assert core.enqueue(_ticket(3), 0) == "key_queue_full"
    assert core.enqueue(_ticket(4, "b"), 0) is None
    assert core.enqueue(_ticket(5, "c"), 0) == "queue_full"


def test_a_line_of_no_length_still_takes_what_runs_at_once() -> None:
    core = FairCore(_changed(ONE, max_queued=0))
    assert core.enqueue(_ticket(1), 0) is None
    core.dispatch(0)
    assert core.enqueue(_ticket(2), 0) == "queue_full"


def test_a_key_at_its_own_limit_lets_the_next_key_pass() -> None:
    core = FairCore(_changed(ONE, capacity=2))
    gone = []
    for number, key_id in ((1, "a"), (2, "a"), (3, "b")):
        core.enqueue(_ticket(number, key_id, Limits(running=1)), 0)
        gone += core.dispatch(0)
    assert gone == [1, 3]


def test_a_hold_keeps_the_line_and_its_longest_wait() -> None:
    core = _core(1, limits=ONE)
    core.set_state(Hold("switching"))
    assert core.dispatch(0) == []
    assert core.next_change_s(0) == 10
    assert core.expire(9.9) == []
    core.set_state(Open())
    assert core.dispatch(9.9) == [1]


def test_a_draining_line_serves_who_waits_and_takes_nobody() -> None:
    core = _core(1, limits=ONE)
    core.set_state(Drain())
    assert core.enqueue(_ticket(2), 0) == "draining"
    assert core.dispatch(0) == [1]


def test_a_draining_line_does_not_send_who_waits_to_an_engine_that_is_away() -> None:
    core = _core(1, limits=ONE)
    core.set_state(Drain(held=True))
    assert core.enqueue(_ticket(2), 0) == "draining"
    assert core.dispatch(0) == []
    core.set_state(Drain())
    assert core.dispatch(0) == [1]


def test_who_is_put_back_has_its_old_place() -> None:
    core = FairCore(ONE)
    core.enqueue(_ticket(1), 0)
    core.dispatch(0)
    core.enqueue(_ticket(2), 1)
    core.put_back(1, 2)
    assert core.dispatch(2) == [1]
    place = core.place(2, 2)
    assert place is not None
    assert place.position == 0


def test_by_default_a_batch_request_is_promoted_before_its_wait_is_over() -> None:
    limits = Queue()
    assert limits.batch_promoted_after_s < limits.max_wait_s


def _run(what: Coroutine[object, object, T]) -> T:
    return asyncio.run(asyncio.wait_for(what, 10))


def _line(limits: Queue = ONE) -> Line:
    return Line(FairCore(limits), lambda: asyncio.get_running_loop().time())


def test_a_permit_is_handed_on_and_released_once() -> None:
    async def scene() -> None:
        line = _line()
        first = await line.enter(_ticket(1))
        second = asyncio.create_task(line.enter(_ticket(2)))
        await asyncio.sleep(0)
        assert not second.done()
        first.release(SPENT)
        first.release(SPENT)
        (await second).release(SPENT)
        assert (line.snapshot().running, line.snapshot().queued) == (0, {})

    _run(scene())


@pytest.mark.parametrize("granted_first", [True, False])
def test_a_waiter_that_is_cancelled_leaves_no_permit_behind(*, granted_first: bool) -> None:
    async def scene() -> None:
        line = _line()
        first = await line.enter(_ticket(1))
        second = asyncio.create_task(line.enter(_ticket(2)))
        await asyncio.sleep(0)
        if granted_first:
            first.release(SPENT)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        first.release(SPENT)
        assert (line.snapshot().running, line.snapshot().queued) == (0, {})
        assert isinstance(await line.enter(_ticket(3)), Permit)

    _run(scene())


@pytest.mark.parametrize(
    ("hold", "code"), [(None, "queue_timeout"), (Hold("loading", "12 %"), "model_on_hold")]
)
def test_a_wait_too_long_is_503_with_its_reason(hold: Hold | None, code: str) -> None:
    async def scene() -> Refused:
        line = _line(_changed(ONE, max_wait_s=0.05))
        await line.enter(_ticket(1))
        if hold is not None:
            line.hold("admin", hold)
        with pytest.raises(Refused) as caught:
            await line.enter(_ticket(2))
        return caught.value

    error = _run(scene()).error
    assert (error.status, error.code) == (503, code)
    assert error.headers[0][0] == "retry-after"


def test_who_lost_the_engine_waits_again_before_those_who_came_later() -> None:
    async def scene() -> list[int]:
        line = _line()
        order = []

        async def go(waiting: Coroutine[object, object, Permit]) -> None:
            permit = await waiting
            order.append(permit.ticket.number)
            permit.release(SPENT)

        first = await line.enter(_ticket(1))
        later = asyncio.create_task(go(line.enter(_ticket(2))))
        await asyncio.sleep(0)
        line.hold("engine", Hold("restarting"))
        again = asyncio.create_task(go(line.again(first)))
        await asyncio.sleep(0)
        line.release("engine")
        await asyncio.gather(later, again)
        return order

    assert _run(scene()) == [1, 2]


def test_two_holds_end_one_by_one_and_a_drain_ends_neither() -> None:
    async def scene() -> list[object]:
        line = _line()
        line.hold("engine", Hold("restarting"))
        line.hold("admin", Hold("switching"))
        seen: list[object] = [line.snapshot().state]
        line.release("admin")
        seen.append(line.snapshot().state)
        line.release("engine")
        seen.append(line.snapshot().state)
        line.drain()
        return [*seen, line.snapshot().state]

    assert _run(scene()) == [Hold("switching"), Hold("restarting"), Open(), Drain()]


def test_a_drain_says_whether_the_engine_is_away_too() -> None:
    async def scene() -> list[object]:
        line = _line()
        line.hold("engine", Hold("restarting"))
        line.drain()
        seen: list[object] = [line.snapshot().state]
        line.release("engine")
        return [*seen, line.snapshot().state]

    assert _run(scene()) == [Drain(held=True), Drain()]

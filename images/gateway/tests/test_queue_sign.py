"""A permit that comes while a comment is still being sent, to a client that is about to leave."""

import asyncio

import pytest
from starlette.types import Message

from gateway.admission.fair import FairCore
from gateway.admission.line import Line, Permit
from gateway.admission.tickets import Hold, Spent
from gateway.caller import Caller
from gateway.dialects.openai import CHAT
from gateway.engine_request import EngineRequest
from gateway.metrics import Metrics
from gateway.policy import Policy, Queue
from gateway.reply import Reply
from gateway.usage import Usage
from gateway.waiting import WaitingRoom

CALLER = Caller(key_id="ann", name="Ann")
ASKED = EngineRequest(method="POST", path="/", stream=True)
POLICY = Policy(queue=Queue(capacity=1, visible_after_s=0.01, visible_every_s=0.01))


class SlowClient:
    """Reads nothing until `reads` is set; `stuck` once something is being sent to it."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.stuck = asyncio.Event()
        self.told_twice = asyncio.Event()
        self.received: list[Message] = []

    async def send(self, message: Message) -> None:
        self.stuck.set()
        await self.reads.wait()
        self.received.append(message)
        if len(self.received) > 2:
            self.told_twice.set()


def _room() -> WaitingRoom:
    now_s = asyncio.get_running_loop().time
    return WaitingRoom(Line(FairCore(POLICY.queue), now_s), Metrics())


def _permit(
    room: WaitingRoom, client: SlowClient, asked: EngineRequest = ASKED
) -> asyncio.Task[Permit]:
    dialect = CHAT
    reply = Reply(client.send, dialect)
    waiting = room.permit(
        asked, request_id="r", caller=CALLER, reply=reply, dialect=dialect, policy=POLICY
    )
    return asyncio.create_task(waiting)


@pytest.mark.parametrize("turns", range(6))
def test_a_permit_that_comes_too_late_for_who_leaves_is_given_back(turns: int) -> None:
    """In whichever turn of the loop: at the last the permit is there, and a comment holds it up."""

    async def scene() -> int:
        before = asyncio.all_tasks()
        room = _room()
        first = await _permit(room, SlowClient())
        client = SlowClient()
        second = _permit(room, client)
        await client.stuck.wait()
        first.release(Spent(usage=Usage(), outcome="finished"))
        for _ in range(turns):
            await asyncio.sleep(0)
        assert room.line.snapshot().running == 1
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        return room.line.snapshot().running

    assert asyncio.run(asyncio.wait_for(scene(), 10)) == 0


def test_whatever_the_admin_writes_stays_inside_its_comment() -> None:
    async def scene() -> list[bytes]:
        room = _room()
        room.line.hold("admin", Hold("loading", "12 %\n\ndata: {}\r\rid: 1"))
        client = SlowClient()
        client.reads.set()
        waiting = _permit(room, client)
        await client.told_twice.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return [message["body"] for message in client.received[1:]]

    comments = asyncio.run(asyncio.wait_for(scene(), 10))
    assert set(comments) == {b": queue position=0 loading 12 % data: {} id: 1\n\n"}


def test_without_stream_nothing_is_sent_however_long_the_wait() -> None:
    async def scene() -> list[Message]:
        room = _room()
        room.line.hold("admin", Hold("loading"))
        silent, told = SlowClient(), SlowClient()
        told.reads.set()
        whole = _permit(room, silent, ASKED._replace(stream=False))
        streamed = _permit(room, told)
        # Who came later has seen more than the first could have.
        await told.told_twice.wait()
        for waiting in (whole, streamed):
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert not silent.stuck.is_set()
        return silent.received

    assert asyncio.run(asyncio.wait_for(scene(), 10)) == []

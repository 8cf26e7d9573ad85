"""How many connections there may be, who goes first, and that nobody locks others out."""

import contextlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.door import Door
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
    running_gateway,
)
from paced_engine.running import RunningEngine

MODELS = (
    f"GET /v1/models HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {GATEWAY_KEY}\r\n\r\n"
).encode()
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: g\r\n\r\n"
HALF = b"POST /v1/chat/completions HTTP/1.1\r\nx: "


@dataclass(eq=False)
class Visitor:
    """A connection as the door sees it."""

    name: str
    answered: bool = False
    between: bool = True

    def is_answered(self) -> bool:
        return self.answered

    def is_between_requests(self) -> bool:
        return self.between and not self.answered

    def dismiss(self) -> None:
        GONE.append(self.name)


GONE: list[str] = []


@pytest.fixture
def gone() -> list[str]:
    GONE.clear()
    return GONE


def _door(most: int, most_strangers: int, most_of_key: int = 99) -> Door:
    return Door(
        most=most, most_strangers=most_strangers, most_of_key=most_of_key, now_s=lambda: 0.0
    )


def _enter(door: Door, *visitors: Visitor, with_key: str | None = None) -> None:
    for visitor in visitors:
        door.enters(visitor)
        assert with_key is None or door.shows_key(visitor, with_key)


def test_the_stranger_who_stands_there_longest_goes_first(gone: list[str]) -> None:
    door = _door(most=9, most_strangers=2)
    _enter(door, Visitor("known"), with_key="a")
    _enter(door, Visitor("a"), Visitor("b"), Visitor("c"), Visitor("d"))
    assert gone == ["a", "b"]
    assert (door.strangers(), door.inside(), door.dismissed) == (2, 3, 2)


def test_a_stranger_who_is_answered_goes_after_those_who_are_not(gone: list[str]) -> None:
    door = _door(most=9, most_strangers=2)
    _enter(door, Visitor("probe", answered=True), Visitor("b"), Visitor("c"))
    assert gone == ["b"]
    _enter(door := _door(most=9, most_strangers=1), Visitor("x", answered=True), Visitor("y"))
    assert gone == ["b", "x"]


def test_where_all_places_are_taken_strangers_go_before_who_has_a_key(gone: list[str]) -> None:
    door = _door(most=3, most_strangers=9)
    first, second = Visitor("first"), Visitor("second")
    _enter(door, first, second, with_key="a")
    _enter(door, Visitor("stranger"), Visitor("newcomer"))
    assert gone == ["stranger"]


def test_who_shows_a_key_takes_the_place_of_a_stranger(gone: list[str]) -> None:
    door = _door(most=2, most_strangers=9)
    _enter(door, Visitor("working", answered=True), with_key="a")
    early, late = Visitor("early", answered=True), Visitor("late")
    _enter(door, early, late)
    early.answered = False
    assert door.shows_key(late, "a")
    assert gone == ["early"]


def test_of_those_with_a_key_the_one_that_was_idle_longest_goes(gone: list[str]) -> None:
    door = _door(most=3, most_strangers=9)
    first, second = Visitor("first"), Visitor("second")
    working = Visitor("working", answered=True)
    _enter(door, working, first, second, with_key="a")
    door.rests(first)
    _enter(door, Visitor("newcomer"), with_key="a")
    assert gone == ["second"]


@pytest.mark.parametrize("busy", [{"answered": True}, {"between": False}])
def test_who_is_at_work_stays_and_the_newcomer_is_told(
    gone: list[str], busy: dict[str, bool]
) -> None:
    door = _door(most=2, most_strangers=9)
    workers = [Visitor("first", **busy), Visitor("second", **busy)]
    _enter(door, *workers, with_key="a")
    newcomer = Visitor("newcomer", answered=True)
    door.enters(newcomer)
    assert not door.shows_key(newcomer, "a")
    assert door.shows_key(workers[0], "a")
    assert gone == []
    door.leaves(workers[0])
    assert door.shows_key(newcomer, "a")


def test_one_key_does_not_take_the_places_of_all(gone: list[str]) -> None:
    door = _door(most=9, most_strangers=9, most_of_key=2)
    idle, slow = Visitor("idle"), Visitor("slow", answered=True)
    _enter(door, slow, idle, with_key="a")
    _enter(door, Visitor("other"), with_key="b")
    _enter(door, Visitor("third", answered=True), with_key="a")
    assert gone == ["idle"]
    fourth = Visitor("fourth", answered=True)
    door.enters(fourth)
    assert not door.shows_key(fourth, "a")
    assert door.shows_key(fourth, "b")
    assert gone == ["idle"]


def test_uploads_without_end_lock_out_nobody_but_their_own_key(
    engine: RunningEngine, tmp_path: Path
) -> None:
    (tmp_path / "webui").write_text("another-key")
    env = environment(
        tmp_path,
        engine.url,
        MAX_CONNECTIONS="6",
        MAX_CONNECTIONS_PER_KEY="4",
        WEBUI_KEY_FILE=str(tmp_path / "webui"),
    )
    with running_gateway(env) as gateway, ExitStack() as stack:
        endless = [stack.enter_context(Client(gateway.port)) for _ in range(10)]
        for one in endless:
            one.send(chat_head(1000, new_id(), key="another-key") + b"{")
        with contextlib.suppress(ConnectionError):
            assert b'"too_many_connections"' in endless[-1].read_to_close()
        assert gateway.ask("POST", CHAT, chat_body(stream=False, tick_s=0.0)).status == 200


@pytest.fixture
def narrow(engine: RunningEngine, tmp_path: Path) -> Iterator[Gateway]:
    """No deadline helps here: only the bounds do."""
    env = environment(
        tmp_path, engine.url, MAX_CONNECTIONS="6", MAX_STRANGERS="4", HEADER_TIMEOUT_S="1000"
    )
    with running_gateway(env) as running:
        yield running


def test_silent_connections_lock_nobody_out(narrow: Gateway, engine: RunningEngine) -> None:
    request_id = new_id()
    with ExitStack() as stack:
        running = stack.enter_context(narrow.chat(chat_body(tick_s=0.2, ticks=20), request_id))
        running.read_until(b"tick 0")
        for _ in range(300):
            silent = socket.create_connection(("127.0.0.1", narrow.port))
            stack.callback(silent.close)
            with contextlib.suppress(ConnectionError):
                silent.sendall(HALF)
        assert narrow.ask("POST", CHAT, chat_body(stream=False, tick_s=0.0)).status == 200
        assert narrow.metric("gateway_connections") <= 6
        running.read_until(b"data: [DONE]")
    assert engine.wait(request_id, until="ended")["ran_to_end"]


def test_the_oldest_stranger_makes_room_for_the_newest(narrow: Gateway) -> None:
    with ExitStack() as stack:
        oldest, *others = [stack.enter_context(Client(narrow.port)) for _ in range(5)]
        with contextlib.suppress(ConnectionError):
            assert oldest.read_to_close() == b""
        for client in others:
            client.send(HEALTH)
            client.read_until(b"alive")


def test_an_idle_connection_makes_room_and_a_running_answer_never_does(
    narrow: Gateway,
) -> None:
    with ExitStack() as stack:
        idle = stack.enter_context(Client(narrow.port))
        idle.send(MODELS)
        idle.read_until(b'"data"')
        for _ in range(5):
            running = stack.enter_context(narrow.chat(chat_body(tick_s=LONG_TICK_S), new_id()))
            running.read_until(b"tick 0")
        # Six are inside. The next takes the place of the idle one, and the one after it of nobody.
        last = stack.enter_context(narrow.chat(chat_body(tick_s=LONG_TICK_S), new_id()))
        last.read_until(b"tick 0")
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in idle.read_to_close().removeprefix(idle.received)
        refused = narrow.ask("POST", CHAT, chat_body())
        assert (refused.status, refused.json()["error"]["code"]) == (503, "too_many_connections")
        assert refused.headers["retry-after"] == "5"
        assert narrow.metric("gateway_requests_running") == 6
    assert eventually(lambda: narrow.metric("gateway_connections") == 0)


def test_more_connections_than_open_files_are_refused_at_the_start(
    engine: RunningEngine, tmp_path: Path
) -> None:
    env = environment(tmp_path, engine.url, MAX_CONNECTIONS="100000000")
    with pytest.raises(AssertionError, match="open files are needed"), running_gateway(env):
        pass

"""Asks an engine all that is kept of it."""

import threading
import time
from contextlib import closing
from datetime import datetime, timezone

from recording.asked import Asked, question, requests, story
from recording.client import Door, Exchange, told
from recording.recorded import Engine, Recording, Spoken

_PATIENCE_S = 60


def record(door: Door, engine: Engine) -> Recording:
    """Raises OSError where the engine can't be asked, AssertionError where it does not recover."""
    asked = requests(engine.model, engine.context_tokens)
    answers = {name: _spoken(door, one) for name, one in asked.items()}
    first, second, waited = _two_at_once(door, engine.model)
    return Recording(
        engine=engine,
        answers=answers,
        first=first,
        second=second,
        second_waited=waited,
        left_after=_left(door, engine.model),
        next=_next(door, engine.model),
    )


def today() -> str:
    return datetime.now(timezone.utc).date().isoformat()


def _spoken(door: Door, asked: Asked) -> Spoken:
    with closing(Exchange(door, asked)) as exchange:
        exchange.read_all()
        return _as_spoken(exchange)


def _as_spoken(exchange: Exchange) -> Spoken:
    return Spoken(
        status=exchange.status,
        headers=told(exchange.headers),
        chunked=exchange.chunked,
        pieces=tuple(piece.decode() for piece in exchange.pieces),
    )


def _two_at_once(door: Door, model: str) -> tuple[Spoken, Spoken, bool]:
    """The second comes once the first has begun to answer."""
    ended: dict[str, float] = {}
    with closing(Exchange(door, story(model))) as first:
        first.read_one()

        def read_first() -> None:
            first.read_all()
            ended["first"] = time.monotonic()

        reading = threading.Thread(target=read_first)
        reading.start()
        second = _spoken(door, question(model))
        ended["second"] = time.monotonic()
        reading.join()
        return _as_spoken(first).shortened(), second, ended["second"] > ended["first"]


def _left(door: Door, model: str) -> tuple[str, ...]:
    with closing(Exchange(door, story(model))) as leaving:
        leaving.read_one()
        leaving.read_one()
        return tuple(piece.decode() for piece in leaving.pieces)


def _next(door: Door, model: str) -> Spoken:
    """Whoever comes after may be refused for a moment: an engine hears late that somebody left."""
    deadline = time.monotonic() + _PATIENCE_S
    while (answer := _spoken(door, question(model))).status == 503:
        assert time.monotonic() < deadline, "the engine goes on for a client that has left"
        time.sleep(0.1)
    return answer

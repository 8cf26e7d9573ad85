"""A day at a paced engine in no time: keys ask, the core decides, and the clock jumps."""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from gateway.admission.tickets import Core, Place, Spent, Ticket
from gateway.caller import KeyClass, Limits
from gateway.usage import Usage

PREFILL_TOKENS_PER_S = 200.0
DECODE_TOKENS_PER_S = 4.0
"""Of each permit, as a CPU engine of some 15 tokens a second has for four."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One request that a key will make, and what the engine will make of it."""

    prompt_tokens: int
    completion_tokens: int
    prefix: tuple[bytes, ...] = ()

    @property
    def first_token_s(self) -> float:
        return self.prompt_tokens / PREFILL_TOKENS_PER_S

    @property
    def held_s(self) -> float:
        return self.first_token_s + self.completion_tokens / DECODE_TOKENS_PER_S


@dataclass(slots=True, kw_only=True)
class Key:
    """Makes its wishes one after the other, `outstanding` at a time, and thinks in between."""

    key_id: str
    wishes: list[Wish]
    key_class: KeyClass = "interactive"
    background: bool = False
    outstanding: int = 1
    think_s: Callable[[random.Random, float], float] = lambda _random, _now_s: 0.0


@dataclass(slots=True, kw_only=True)
class Request:
    key: Key
    wish: Wish
    then: Iterator[Wish]
    """What the key wishes when this one is answered."""
    ticket: Ticket
    arrived_s: float
    place: Place | None = None
    """As it was told on arrival; None if it did not have to wait."""
    started_s: float = -1.0

    @property
    def waited_s(self) -> float:
        return self.started_s - self.arrived_s


class Day:
    """`watch` is called after everything that happens to the line."""

    def __init__(self, core: Core, keys: Iterable[Key], *, seed: int) -> None:
        self.core = core
        self.now_s = 0.0
        self.requests: dict[int, Request] = {}
        self.queued: set[int] = set()
        self.running: set[int] = set()
        self._random = random.Random(seed)  # noqa: S311 - the same day every time
        self._happenings: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        for key in keys:
            wishes = iter(key.wishes)
            for _ in range(key.outstanding):
                self._think(key, wishes)

    def run(
        self,
        watch: Callable[[], None] = lambda: None,
        *,
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        while self._happenings and not until():
            self.now_s, _, happen = heapq.heappop(self._happenings)
            happen()
            watch()

    def _at(self, at_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._happenings, (at_s, next(self._numbers), happen))

    def _think(self, key: Key, wishes: Iterator[Wish]) -> None:
        if (wish := next(wishes, None)) is not None:
            think_s = key.think_s(self._random, self.now_s)
            self._at(self.now_s + think_s, lambda: self._arrive(key, wish, wishes))

    def _arrive(self, key: Key, wish: Wish, then: Iterator[Wish]) -> None:
        number = next(self._numbers)
        ticket = Ticket(
            number=number,
            request_id=str(number),
            key_id=key.key_id,
            key_class=key.key_class,
            limits=Limits(),
            background=key.background,
            prompt_tokens_estimate=wish.prompt_tokens,
            max_tokens_cap=1024,
            prefix=wish.prefix,
            stream=True,
        )
        request = Request(key=key, wish=wish, then=then, ticket=ticket, arrived_s=self.now_s)
        assert self.core.enqueue(ticket, self.now_s) is None
        self.requests[number] = request
        self.queued.add(number)
        self._start()
        request.place = self.core.place(number, self.now_s)

    def _start(self) -> None:
        assert self.core.expire(self.now_s) == []
        for number in self.core.dispatch(self.now_s):
            request = self.requests[number]
            self.queued.remove(number)
            self.running.add(number)
            request.started_s = self.now_s
            self._at(self.now_s + request.wish.held_s, partial(self._end, number))
        if (change_s := self.core.next_change_s(self.now_s)) is not None:
            self._at(change_s, self._wake)

    def _wake(self) -> None:
        # A change that has been seen to meanwhile is none; and one more would breed for ever.
        for number in self.core.dispatch(self.now_s):
            raise AssertionError(number)

    def _end(self, number: int) -> None:
        request = self.requests[number]
        self.running.remove(number)
        wish = request.wish
        usage = Usage(prompt_tokens=wish.prompt_tokens, completion_tokens=wish.completion_tokens)
        spent = Spent(
            usage=usage,
            outcome="finished",
            first_token_s=wish.first_token_s,
            held_s=wish.held_s,
        )
        self.core.finish(number, spent, self.now_s)
        self._start()
        self._think(request.key, request.then)

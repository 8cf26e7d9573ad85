"""A day of forty keys at one slow engine: nobody starves, equals get equal, waits are foreseen."""

import random
import statistics
from collections.abc import Sequence

import pytest

from gateway.admission.fair import FairCore
from gateway.policy import Queue
from images.gateway.tests.simulated_day import DECODE_TOKENS_PER_S, Day, Key, Request, Wish

CAPACITY = 4
HOUR_S = 3600.0
PEOPLE = 33
JOBS = 6
REQUESTS_OF_ONE = 100
REQUESTS_OF_GREEDY = 5000 - (PEOPLE + JOBS) * REQUESTS_OF_ONE
MOST_PROMPT_TOKENS = 400
MOST_COMPLETION_TOKENS = 300
NAMED = {"lighter", "class", "promotion", "prefix"}

QUEUE = Queue(
    capacity=CAPACITY,
    max_queued=256,
    max_queued_per_key=64,
    max_wait_s=24 * HOUR_S,
    batch_promoted_after_s=HOUR_S / 2,
    # As they are for this engine: it reads 200 tokens a second and writes 4.
    prompt_weight=0.04,
    completion_weight=2,
    hot_prefix_overtakes_tokens=100,
)


def _about(chance: random.Random, tokens: int, most: int) -> int:
    return max(1, min(most, round(tokens * chance.lognormvariate(0, 0.3))))


def _conversations(chance: random.Random, key_id: str, requests: int) -> list[Wish]:
    """Each of some four requests, whose prompts grow and continue one another."""
    wishes = []
    prefix: tuple[bytes, ...] = ()
    for number in range(requests):
        if not prefix or chance.random() < 0.25:
            prefix = (f"{key_id} begins {number}".encode(),)
        prefix = (*prefix, f"{key_id} goes on {number}".encode())
        prompt_tokens = _about(chance, 60 + 40 * len(prefix), MOST_PROMPT_TOKENS)
        completion_tokens = _about(chance, 100, MOST_COMPLETION_TOKENS)
        wishes.append(Wish(prompt_tokens, completion_tokens, prefix))
    return wishes


def _thinks_s(chance: random.Random, now_s: float) -> float:
    at_work = 9 * HOUR_S <= now_s <= 17 * HOUR_S
    return chance.expovariate(1 / (240.0 if at_work else 330.0))


def _keys(chance: random.Random) -> list[Key]:
    people = [f"person-{number}" for number in range(PEOPLE)]
    jobs = [f"job-{number}" for number in range(JOBS)]
    return [
        Key(
            key_id="greedy",
            wishes=_conversations(chance, "greedy", REQUESTS_OF_GREEDY),
            outstanding=48,
        ),
        *(
            Key(
                key_id=key_id,
                wishes=_conversations(chance, key_id, REQUESTS_OF_ONE),
                think_s=_thinks_s,
            )
            for key_id in people
        ),
        *(
            Key(
                key_id=key_id,
                wishes=_conversations(chance, key_id, REQUESTS_OF_ONE),
                key_class="batch",
                outstanding=4,
            )
            for key_id in jobs
        ),
    ]


class Watch:
    """Looks at the line after everything that happens: how many run, and where people stand."""

    def __init__(self, day: Day) -> None:
        self.day = day
        self.most_running = 0
        self.rises = 0
        self._positions: dict[int, int] = {}
        self._overtaken = 0

    def __call__(self) -> None:
        day = self.day
        self.most_running = max(self.most_running, len(day.running))
        before, self._positions = self._positions, {}
        for number in day.queued:
            if day.requests[number].key.key_id.startswith("person"):
                place = day.core.place(number, day.now_s)
                assert place is not None
                self._positions[number] = place.position
        rises = sum(
            position > before.get(number, position) for number, position in self._positions.items()
        )
        overtaken = sum(day.core.snapshot().overtaken.values())
        assert overtaken - self._overtaken >= rises, "a rise without a cause"
        self.rises += rises
        self._overtaken = overtaken


@pytest.fixture(scope="module")
def watch() -> Watch:
    chance = random.Random(1)  # noqa: S311 - the same day every time
    watch = Watch(Day(FairCore(QUEUE), _keys(chance), seed=2))
    watch.day.run(watch)
    return watch


def _requests(watch: Watch, kind: str) -> list[Request]:
    found = watch.day.requests.values()
    return [request for request in found if request.key.key_id.startswith(kind)]


def _jain(shares: Sequence[float]) -> float:
    """1: all the same; 1/n: one has all."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def _cost(wish: Wish) -> float:
    return (
        wish.prompt_tokens * QUEUE.prompt_weight + wish.completion_tokens * QUEUE.completion_weight
    )


def _longest_wait_of_a_light_key_s() -> float:
    """For a key that asks for one thing at a time, in a class where all can be ahead of it.

    Its own counter and each other's are at most one request and one prefix's advantage apart when
    it comes, and each other key may go on until it is as far ahead again. While they run, requests
    may be charged too little: one for each permit, at both ends. All of that is served by all
    permits together, after which one more has to end.
    """
    most = _cost(Wish(MOST_PROMPT_TOKENS, MOST_COMPLETION_TOKENS))
    ahead = 2 * (most + QUEUE.hot_prefix_overtakes_tokens)
    tokens = (PEOPLE + JOBS) * ahead + 2 * CAPACITY * most
    # Prompts are weighed as writing is: a weighted token takes half of a written one's time.
    token_s = 1 / (DECODE_TOKENS_PER_S * QUEUE.completion_weight)
    return tokens * token_s / CAPACITY + Wish(MOST_PROMPT_TOKENS, MOST_COMPLETION_TOKENS).held_s


def test_everybody_is_served_and_the_capacity_is_never_exceeded(watch: Watch) -> None:
    assert len(watch.day.requests) == 5000
    assert all(request.started_s >= 0 for request in watch.day.requests.values())
    assert watch.most_running == CAPACITY


def test_no_light_key_starves_beside_a_greedy_one(watch: Watch) -> None:
    waits_s = [request.waited_s for request in _requests(watch, "person")]
    greedy_s = [request.waited_s for request in _requests(watch, "greedy")]
    assert max(waits_s) <= _longest_wait_of_a_light_key_s()
    # The bound is for the worst that can be; this is what a person notices.
    assert statistics.quantiles(waits_s, n=100)[-1] < statistics.median(greedy_s)


def test_batch_waits_for_its_promotion_at_most_and_then_like_the_others(watch: Watch) -> None:
    longest_s = QUEUE.batch_promoted_after_s + 4 * _longest_wait_of_a_light_key_s()
    assert max(request.waited_s for request in _requests(watch, "job")) <= longest_s


def test_every_rise_of_a_position_has_a_name(watch: Watch) -> None:
    # Each look of the watch has compared the two already.
    assert watch.rises > 0
    assert set(watch.day.core.snapshot().overtaken) == NAMED


def test_a_wait_is_foreseen_within_thirty_percent_at_the_median(watch: Watch) -> None:
    """As it was told on arrival, over all waits that are long enough to be shown."""
    told = [
        (request.place.eta_s, request.waited_s)
        for request in watch.day.requests.values()
        if request.place and request.waited_s >= QUEUE.visible_after_s
    ]
    errors = [abs(eta_s - waited_s) / waited_s for eta_s, waited_s in told if eta_s is not None]
    assert len(errors) > 1000
    assert statistics.median(errors) <= 0.3


def test_equal_keys_have_had_equal_tokens(watch: Watch) -> None:
    shares = dict.fromkeys((f"person-{number}" for number in range(PEOPLE)), 0.0)
    for request in _requests(watch, "person"):
        shares[request.key.key_id] += _cost(request.wish)
    assert _jain(list(shares.values())) >= 0.95


def test_equal_keys_that_never_stop_asking_get_equal_tokens_whatever_they_ask() -> None:
    """Long prompts, long answers, many at once: only by tokens are these equal."""
    shapes = [(400, 50, 1), (20, 300, 1), (20, 50, 4), (100, 100, 2)]
    keys = [
        Key(key_id=str(number), wishes=[Wish(prompt, completion)] * 2000, outstanding=outstanding)
        for number, (prompt, completion, outstanding) in enumerate(shapes * 3)
    ]
    day = Day(FairCore(QUEUE), keys, seed=3)
    day.run(until=lambda: day.now_s > 8 * HOUR_S)
    shares = {key.key_id: 0.0 for key in keys}
    for request in day.requests.values():
        if request.started_s >= 0 and request.ticket.number not in day.running:
            shares[request.key.key_id] += _cost(request.wish)
    assert _jain(list(shares.values())) >= 0.95

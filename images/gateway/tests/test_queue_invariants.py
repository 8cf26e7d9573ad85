"""What holds whatever happens to the line, and in which order: found by trying to break it."""

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.admission.fair import FairCore
from gateway.admission.tickets import Hold, Open, Outcome, Spent, Ticket
from gateway.caller import KeyClass, Limits
from gateway.policy import Queue
from gateway.usage import Usage

CLASSES: dict[str, KeyClass] = {"ann": "interactive", "bob": "interactive", "eve": "batch"}
PROMOTED_AFTER_S = 60.0
MAX_WAIT_S = 150.0
NAMED = {"lighter", "class", "promotion", "returned"}


def _ticket(number: int, key_id: str, prompt_tokens: int = 10, cap: int = 100) -> Ticket:
    return Ticket(
        number=number,
        request_id="the same for all",
        key_id=key_id,
        key_class=CLASSES[key_id],
        limits=Limits(),
        prompt_tokens_estimate=prompt_tokens,
        max_tokens_cap=cap,
    )


class Line(RuleBasedStateMachine):
    """Keeps its own books on who waits and who runs, and compares after every step."""

    @initialize(capacity=st.integers(1, 3))
    def opens(self, capacity: int) -> None:
        self.capacity = capacity
        self.core = FairCore(
            Queue(
                capacity=capacity,
                max_queued=8,
                max_queued_per_key=5,
                max_wait_s=MAX_WAIT_S,
                batch_promoted_after_s=PROMOTED_AFTER_S,
            )
        )
        self.numbers = itertools.count(1)
        self.now_s = 0.0
        self.held = False
        self.queued: dict[int, Ticket] = {}
        self.running: dict[int, Ticket] = {}
        self.positions: dict[int, int] = {}
        self.overtaken = 0

    @rule(
        key_id=st.sampled_from(sorted(CLASSES)),
        prompt_tokens=st.integers(0, 500),
        cap=st.integers(0, 500),
    )
    def somebody_comes(self, key_id: str, prompt_tokens: int, cap: int) -> None:
        ticket = _ticket(next(self.numbers), key_id, prompt_tokens, cap)
        of_key = sum(other.key_id == key_id for other in self.queued.values())
        full = len(self.queued) >= 8 or of_key >= 5
        free = not self.held and len(self.running) < self.capacity
        turned_away = self.core.enqueue(ticket, self.now_s)
        assert (turned_away is None) == (free or not full)
        if turned_away is None:
            self.queued[ticket.number] = ticket
        self._goes_on()

    @precondition(lambda self: self.running)
    @rule(
        choice=st.integers(0, 99),
        completion_tokens=st.integers(0, 800),
        outcome=st.sampled_from(["finished", "cancelled", "failed"]),
    )
    def somebody_ends(self, choice: int, completion_tokens: int, outcome: Outcome) -> None:
        number = sorted(self.running)[choice % len(self.running)]
        usage = Usage(prompt_tokens=10, completion_tokens=completion_tokens)
        spent = Spent(usage=usage, outcome=outcome, first_token_s=1.0, held_s=2.0)
        self.core.finish(number, spent, self.now_s)
        del self.running[number]
        self._goes_on()

    @precondition(lambda self: self.queued)
    @rule(choice=st.integers(0, 99))
    def somebody_leaves(self, choice: int) -> None:
        number = sorted(self.queued)[choice % len(self.queued)]
        self.core.leave(number, self.now_s)
        del self.queued[number]
        self._goes_on()

    @precondition(lambda self: self.running)
    @rule(choice=st.integers(0, 99))
    def the_engine_loses_somebody(self, choice: int) -> None:
        number = sorted(self.running)[choice % len(self.running)]
        self.core.put_back(number, self.now_s)
        self.queued[number] = self.running.pop(number)
        self._goes_on()

    @rule(seconds=st.sampled_from([1.0, 30.0, PROMOTED_AFTER_S, MAX_WAIT_S]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        # Ages those who wait, as a step of its own.
        self.core.retry_after_s(self.now_s)
        self._counts_rises()
        for number in self.core.expire(self.now_s):
            del self.queued[number]
        self._goes_on()

    @rule(capacity=st.integers(1, 4))
    def the_capacity_changes(self, capacity: int) -> None:
        self.capacity = capacity
        self.core.set_capacity(capacity)
        self._goes_on()

    @rule(held=st.booleans())
    def the_line_is_held_or_opened(self, *, held: bool) -> None:
        self.held = held
        self.core.set_state(Hold("switching") if held else Open())
        self._goes_on()

    def _goes_on(self) -> None:
        self._counts_rises()
        before = len(self.running)
        for number in self.core.dispatch(self.now_s):
            ticket = self.queued.pop(number)
            self.running[number] = ticket
            same = [each for each in self.queued.values() if each.key_id == ticket.key_id]
            assert all(number < other.number for other in same), "first come, first served"
        assert len(self.running) == before or len(self.running) <= self.capacity
        self._counts_rises()

    def _counts_rises(self) -> None:
        """Every rise was counted once, and nothing else was."""
        found = {number: self.core.place(number, self.now_s) for number in self.queued}
        positions = {number: place.position for number, place in found.items() if place}
        rises = sum(
            position > self.positions.get(number, position)
            for number, position in positions.items()
        )
        overtaken = self.core.snapshot().overtaken
        assert sum(overtaken.values()) - self.overtaken == rises
        assert set(overtaken) <= NAMED
        self.positions, self.overtaken = positions, sum(overtaken.values())

    @invariant()
    def nobody_is_lost_and_nobody_is_two(self) -> None:
        snapshot = self.core.snapshot()
        assert sum(snapshot.queued.values()) == len(self.queued)
        assert snapshot.running == len(self.running)
        assert sorted(self.positions.values()) == list(range(len(self.queued)))

    @invariant()
    def no_permit_is_idle_while_somebody_waits(self) -> None:
        if self.queued and not self.held:
            assert len(self.running) >= self.capacity

    @invariant()
    def the_line_wakes_for_the_next_that_has_waited_too_long(self) -> None:
        change_s = self.core.next_change_s(self.now_s)
        assert (change_s is None) == (not self.queued)
        assert change_s is None or self.now_s < change_s <= self.now_s + MAX_WAIT_S


Line.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestLine = Line.TestCase


@settings(derandomize=True, deadline=None)
@given(
    tokens=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000)), max_size=30),
    capacity=st.integers(1, 4),
)
def test_one_key_is_plain_first_come_first_served(
    tokens: list[tuple[int, int]], capacity: int
) -> None:
    core = FairCore(Queue(capacity=capacity))
    for number, (prompt_tokens, cap) in enumerate(tokens):
        core.enqueue(_ticket(number, "ann", prompt_tokens, cap), 0)
    order = running = core.dispatch(0)
    while running:
        spent = Spent(usage=Usage(completion_tokens=tokens[running[0]][1]), outcome="finished")
        core.finish(running[0], spent, 1)
        going = core.dispatch(1)
        order, running = order + going, running[1:] + going
    assert order == list(range(len(tokens)))
    assert core.snapshot().overtaken == {}

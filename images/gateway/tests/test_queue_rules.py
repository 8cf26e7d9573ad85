"""Each rule of the line by itself: who goes before whom, why, and what is foreseen."""

from gateway.admission.fair import FairCore
from gateway.admission.tickets import Hold, Place, Spent, Ticket
from gateway.caller import KeyClass, Limits
from gateway.policy import Queue
from gateway.usage import Usage

ONE = Queue(
    capacity=1,
    prompt_weight=1,
    completion_weight=1,
    batch_promoted_after_s=100,
    max_wait_s=1000,
)
HOT = Queue(capacity=1, prompt_weight=1, completion_weight=1, hot_prefix_overtakes_tokens=100)


def _ticket(  # noqa: PLR0913 - a ticket has that many sides
    number: int,
    key_id: str = "ann",
    *,
    key_class: KeyClass = "interactive",
    background: bool = False,
    cap: int = 50,
    prefix: tuple[bytes, ...] = (),
    running: int | None = None,
) -> Ticket:
    return Ticket(
        number=number,
        request_id=str(number),
        key_id=key_id,
        key_class=key_class,
        limits=Limits(running=running),
        background=background,
        prompt_tokens_estimate=0,
        max_tokens_cap=cap,
        prefix=prefix,
        stream=True,
    )


def _spent(completion: int = 50) -> Spent:
    usage = Usage(completion_tokens=completion)
    return Spent(usage=usage, outcome="finished", first_token_s=0.0, held_s=10.0)


def _with(limits: Queue, *tickets: Ticket) -> FairCore:
    """The first of them runs, the others wait."""
    core = FairCore(limits)
    for ticket in tickets:
        assert core.enqueue(ticket, 0) is None
        core.dispatch(0)
    return core


def _rest(core: FairCore, running: int, now_s: float = 0) -> list[int]:
    """In which order the others go, one after the other."""
    order = []
    going = [running]
    while going:
        core.finish(going[0], _spent(), now_s)
        going = core.dispatch(now_s)
        order += going
    return order


def test_the_key_that_has_had_less_goes_first() -> None:
    core = _with(ONE, _ticket(1), _ticket(2), _ticket(3), _ticket(4, "bob"))
    # Bob comes level with Ann, behind her second but before her third.
    assert _rest(core, 1) == [2, 4, 3]
    assert core.snapshot().overtaken == {"lighter": 1}


def test_what_counts_is_what_was_generated_not_what_was_asked_for() -> None:
    core = _with(ONE, _ticket(1, cap=1000), _ticket(3, "bob"), _ticket(4, "bob"), _ticket(2))
    # Ann's first was expected to take more than both of Bob's, and took next to nothing.
    core.finish(1, _spent(1), 0)
    assert core.dispatch(0) == [3]
    assert _rest(core, 3) == [2, 4]


def test_who_comes_back_has_no_credit_for_the_time_away() -> None:
    core = _with(ONE, _ticket(1, "bob"))
    core.finish(1, _spent(), 0)
    for number in range(2, 12):
        core.enqueue(_ticket(number), 0)
        core.dispatch(0)
    for number in range(2, 7):
        core.finish(number, _spent(), 0)
        core.dispatch(0)
    for number in (20, 21, 22):
        core.enqueue(_ticket(number, "bob"), 0)
    assert _rest(core, 7)[:4] == [8, 20, 9, 21]


def test_interactive_before_batch_before_background() -> None:
    background = _ticket(2, background=True)
    batch = _ticket(3, "job", key_class="batch")
    core = _with(ONE, _ticket(1), background, batch, _ticket(4, cap=900))
    assert _rest(core, 1) == [4, 3, 2]
    assert core.snapshot().overtaken == {"class": 3}


def test_batch_that_has_waited_long_goes_with_the_interactive_ones() -> None:
    batch = _ticket(2, "job", key_class="batch")
    core = _with(ONE, _ticket(1), batch, _ticket(3), _ticket(4))
    assert core.next_change_s(0) == 100
    assert core.place(2, 99) == Place(2, None)
    assert core.place(2, 100) == Place(0, None)
    assert core.snapshot().overtaken == {"class": 2, "promotion": 2}


def test_a_promoted_key_does_not_make_up_for_all_that_it_has_missed() -> None:
    jobs = [_ticket(number, "job", key_class="batch") for number in (10, 11, 12)]
    core = _with(ONE, _ticket(1), *jobs, *(_ticket(number) for number in range(2, 8)))
    for number in range(1, 6):
        core.finish(number, _spent(), 0)
        core.dispatch(0)
    assert _rest(core, 6, now_s=100) == [10, 7, 11, 12]


def test_a_conversation_that_the_engine_still_holds_goes_first_in_its_own_key() -> None:
    core = _with(HOT, _ticket(1, prefix=(b"a",)), _ticket(2), _ticket(3, prefix=(b"a", b"b")))
    assert _rest(core, 1) == [3, 2]
    assert core.snapshot().overtaken == {"prefix": 1}


def test_a_hot_prefix_passes_another_key_by_so_many_tokens_and_no_more() -> None:
    def first_after(had: int) -> int:
        hot = _ticket(3, prefix=(b"a", b"b"))
        core = _with(HOT, _ticket(1, prefix=(b"a",)), _ticket(2, "bob"), hot)
        core.finish(1, _spent(had), 0)
        return core.dispatch(0)[0]

    assert first_after(100) == 3
    assert first_after(101) == 2


def test_a_hot_conversation_does_not_pass_its_own_key_for_ever() -> None:
    core = _with(HOT, _ticket(1, prefix=(b"0",)), _ticket(2))
    passed = 0
    running = 1
    for number in range(3, 20):
        core.enqueue(
            _ticket(number, prefix=(f"{number - 3}".encode(), f"{number - 2}".encode())), 0
        )
        core.finish(running, _spent(), 0)
        (running,) = core.dispatch(0)
        if running == 2:
            break
        passed += 1
    assert passed == 2


def test_the_beginning_of_a_conversation_is_everybodys_and_makes_nobody_hot() -> None:
    core = _with(
        HOT, _ticket(1, prefix=(b"system", b"a")), _ticket(2), _ticket(3, prefix=(b"system", b"b"))
    )
    assert _rest(core, 1) == [2, 3]


def test_a_key_at_its_own_limit_stands_behind_those_that_may_go() -> None:
    core = FairCore(Queue(capacity=2, max_running_per_key=1))
    for number, key_id in ((1, "ann"), (2, "bob"), (3, "ann"), (4, "cid")):
        core.enqueue(_ticket(number, key_id), 0)
        core.dispatch(0)
    core.enqueue(_ticket(5, "ann"), 0)
    core.enqueue(_ticket(6, "dan"), 0)
    places = [core.place(number, 0) for number in (4, 6, 3, 5)]
    assert [place and place.position for place in places] == [0, 1, 2, 3]
    assert "limit" in core.snapshot().overtaken


def test_a_wait_is_foreseen_from_what_others_took() -> None:
    core = _with(ONE, *(_ticket(number) for number in range(1, 6)))
    assert core.place(5, 0) == Place(3, None)
    # Fifty tokens in ten seconds, again and again: a permit is held for ten seconds.
    core.finish(1, _spent(), 10)
    core.dispatch(10)
    assert core.place(5, 10) == Place(2, 30.0)
    assert core.place(5, 14) == Place(2, 26.0)
    assert core.retry_after_s(14) == 6.0


def test_nobody_foresees_the_end_of_a_hold() -> None:
    core = _with(ONE, _ticket(1), _ticket(2), _ticket(3))
    core.finish(1, _spent(), 10)
    core.set_state(Hold("loading"))
    assert core.place(2, 10) == Place(0, None)
    assert core.retry_after_s(10) == 30


def test_fewer_permits_than_are_in_use_make_the_wait_longer() -> None:
    core = _with(ONE, _ticket(1))
    core.finish(1, _spent(), 10)
    core.set_capacity(2)
    for number in (2, 3, 4):
        core.enqueue(_ticket(number), 10)
        core.dispatch(10 if number == 2 else 15)
    assert core.place(4, 15) == Place(0, 5.0)
    core.set_capacity(1)
    assert core.place(4, 15) == Place(0, 10.0)

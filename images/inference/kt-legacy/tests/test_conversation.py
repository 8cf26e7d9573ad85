"""What is read again, and what is not."""

from collections.abc import Sequence

import numpy as np
import pytest

from kt_legacy_engine.conversation import Cancelled, Conversation, Counters
from kt_legacy_engine.model import EngineBroken, Logits
from reciting import CHUNK, Reciter


def never() -> bool:
    return False


def a_conversation(model: Reciter) -> tuple[Conversation, Counters]:
    counters = Counters()
    return Conversation(model, chunk_tokens=CHUNK, counters=counters), counters


def ask(conversation: Conversation, prompt: list[int]) -> int:
    kept = conversation.begin(prompt)
    conversation.read(prompt, never)
    return kept


def test_a_prompt_is_read_in_chunks() -> None:
    model = Reciter()
    conversation, counters = a_conversation(model)
    assert ask(conversation, list(range(40))) == 0
    assert model.seen() == [(0, 16), (16, 16), (32, 8)]
    assert (counters.prefilled, counters.reused, counters.to_prefill) == (40, 0, 0)


def test_of_a_second_turn_only_the_new_tokens_are_read() -> None:
    model = Reciter()
    conversation, counters = a_conversation(model)
    ask(conversation, list(range(40)))
    conversation.append(100)
    model.seen()
    assert ask(conversation, [*range(40), 100, 7, 8]) == 41
    assert model.seen() == [(41, 2)]
    assert (counters.prefilled, counters.reused, counters.decoded) == (42, 41, 1)
    assert model.sequence == [*range(40), 100, 7, 8]


def test_another_conversation_keeps_what_both_begin_with() -> None:
    model = Reciter()
    conversation, _ = a_conversation(model)
    ask(conversation, [1, 2, 3, 4, 5])
    assert ask(conversation, [1, 2, 9]) == 2
    assert model.sequence == [1, 2, 9]


def test_of_the_same_prompt_the_last_token_is_read_again_for_its_logits() -> None:
    model = Reciter()
    conversation, _ = a_conversation(model)
    ask(conversation, [1, 2, 3])
    model.seen()
    assert ask(conversation, [1, 2, 3]) == 2
    assert model.seen() == [(2, 1)]


def test_a_prompt_that_is_the_beginning_of_the_last_one_forgets_the_rest() -> None:
    model = Reciter()
    conversation, _ = a_conversation(model)
    ask(conversation, [1, 2, 3, 4])
    assert ask(conversation, [1, 2]) == 1
    assert model.sequence == [1, 2]


def test_a_cancelled_prompt_stops_between_two_chunks_and_goes_on_from_there() -> None:
    model = Reciter()
    conversation, counters = a_conversation(model)
    prompt = list(range(40))
    answers = iter([False, True])
    conversation.begin(prompt)
    with pytest.raises(Cancelled):
        conversation.read(prompt, lambda: next(answers))
    assert model.seen() == [(0, 16)]
    assert counters.to_prefill == 0
    assert ask(conversation, prompt) == 16
    assert model.seen() == [(16, 16), (32, 8)]


class Spoilt(Reciter):
    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self._logits = logits

    def extend(self, tokens: Sequence[int]) -> Logits:
        super().extend(tokens)
        return np.array(self._logits, dtype=np.float32)


@pytest.mark.parametrize(
    "logits",
    [
        [1.0, float("nan"), 3.0],
        [float("nan")] * 3,
        [1.0, float("inf"), 3.0],
        [-float("inf")] * 3,
    ],
)
def test_an_engine_whose_logits_are_no_numbers_is_broken(logits: list[float]) -> None:
    conversation, _ = a_conversation(Spoilt(logits))
    with pytest.raises(EngineBroken, match="not to be trusted"):
        conversation.read([1], never)


def test_a_token_that_the_engine_rules_out_breaks_nothing() -> None:
    conversation, _ = a_conversation(Spoilt([1.0, -float("inf"), 3.0]))
    assert conversation.read([1], never)[2] == 3

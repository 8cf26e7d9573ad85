"""The first two generations: the first compiles kernels and captures a graph, the second must be fast."""

import time
from collections.abc import Callable

from kt_legacy_engine.conversation import Conversation, Counters
from kt_legacy_engine.generating import Ask, generate
from kt_legacy_engine.model import Model, Tokenizer
from kt_legacy_engine.sampling import Sampling

TOKENS = 8
# Slower than a token in five seconds is of no use to anybody: pages that swap, or weights on a disk.
SECOND_WITHIN_S = 5.0 * TOKENS


class WarmUpFailed(Exception):
    """The engine is loaded, but does not generate as it must."""


def warm_up(
    model: Model,
    tokenizer: Tokenizer,
    chunk_tokens: int,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    prompt = tuple(tokenizer.encode_chat([{"role": "user", "content": "Hello"}]))
    ask = Ask(
        prompt=prompt,
        sampling=Sampling(temperature=0),
        max_tokens=min(TOKENS, model.capacity - len(prompt)),
        ignore_eos=True,
    )
    took = []
    for _ in range(2):
        # Each from nothing: a reused prompt would prove less.
        model.truncate(0)
        conversation = Conversation(model, chunk_tokens=chunk_tokens, counters=Counters())
        began = clock()
        for _event in generate(ask, conversation, tokenizer, lambda: False):
            pass
        took.append(clock() - began)
    model.truncate(0)
    first, second = took
    say(f"warmed up: {ask.max_tokens} tokens in {first:.2f} s, then in {second:.2f} s")
    if second > SECOND_WITHIN_S:
        raise WarmUpFailed(
            f"the second generation of {ask.max_tokens} tokens took {second:.0f} s, more than "
            f"{SECOND_WITHIN_S:.0f} s: are the weights in memory, and on the right node?"
        )

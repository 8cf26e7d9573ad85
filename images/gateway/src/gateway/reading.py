"""A request's body understood: at once where that is quick, in a thread where it is not."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from gateway.dialects.dialect import Dialect
from gateway.engine_counting import EngineCounter, NotCountedError, asks_engine
from gateway.engine_request import EngineRequest
from gateway.errors import Refused
from gateway.policy import Policy
from gateway.shaping import Draft, drafted, finished, shaped

T = TypeVar("T")

# Everyone else's stream stands still meanwhile: parsing takes some 5 ms a megabyte, counting a
# hundred times as long.
_PARSED_AT_ONCE_BYTES = 2**20
_COUNTED_AT_ONCE_BYTES = 2**12


async def understood(
    dialect: Dialect, body: bytes, policy: Policy, counter: EngineCounter
) -> EngineRequest:
    """What the engine is asked, or the answer; Refused if it can't be."""
    if asks_engine(policy):
        return await _counted_there(dialect, body, policy, counter)
    counts = policy.model.tokenizer_file is not None
    at_once = _COUNTED_AT_ONCE_BYTES if counts else _PARSED_AT_ONCE_BYTES
    if len(body) > at_once:
        return await asyncio.to_thread(lambda: shaped(dialect.read(body, policy), policy))
    return shaped(dialect.read(body, policy), policy)


async def _counted_there(
    dialect: Dialect, body: bytes, policy: Policy, counter: EngineCounter
) -> EngineRequest:
    def read() -> tuple[EngineRequest, Draft | None]:
        asked = dialect.read(body, policy)
        return asked, drafted(asked, policy)

    is_long = len(body) > _PARSED_AT_ONCE_BYTES
    asked, draft = await _away(read, is_long=is_long)
    if asked.answer_of is not None:
        return await _answered(asked, policy, counter)
    if draft is None:
        return asked
    count = None if draft.to_count is None else await counter.count(draft.to_count, policy)
    return await _away(lambda: finished(draft, policy, count), is_long=is_long)


async def _answered(asked: EngineRequest, policy: Policy, counter: EngineCounter) -> EngineRequest:
    """Who asks for nothing but numbers hears why there are none, or gets a guess where it may be one."""
    special = asked.parsed.get("add_special_tokens") is not False
    try:
        counted = await counter.counted(asked.parsed, policy, special=special)
    except NotCountedError as error:
        if asked.answer is None:
            raise Refused(error.error) from error
        return asked
    return asked if asked.answer_of is None else asked._replace(answer=asked.answer_of(counted))


async def _away(work: Callable[[], T], *, is_long: bool) -> T:
    return await asyncio.to_thread(work) if is_long else work()

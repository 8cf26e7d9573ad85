"""A request's body understood: at once where that is quick, in a thread where it is not."""

import asyncio

from gateway.dialects.dialect import Dialect
from gateway.engine_request import EngineRequest
from gateway.policy import Policy
from gateway.shaping import shaped

# Everyone else's stream stands still meanwhile: parsing takes some 5 ms a megabyte, counting a
# hundred times as long.
_PARSED_AT_ONCE_BYTES = 2**20
_COUNTED_AT_ONCE_BYTES = 2**12


async def understood(dialect: Dialect, body: bytes, policy: Policy) -> EngineRequest:
    """What the engine is asked, or the answer; Refused if it can't be."""
    counts = policy.model.tokenizer_file is not None
    if len(body) <= (_COUNTED_AT_ONCE_BYTES if counts else _PARSED_AT_ONCE_BYTES):
        return _understood(dialect, body, policy)
    return await asyncio.to_thread(_understood, dialect, body, policy)


def _understood(dialect: Dialect, body: bytes, policy: Policy) -> EngineRequest:
    return shaped(dialect.read(body, policy), policy)

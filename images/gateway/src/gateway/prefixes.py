"""What two turns of one talk have in common, as digests: the engine may still hold that part."""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

import orjson

_DIGEST_BYTES = 8
_PROMPT_BLOCK_CHARACTERS = 1024


def prefix_of(parsed: Mapping[str, Any]) -> tuple[bytes, ...]:
    """One digest a message (or a block of a text prompt), each over all that comes before it too.

    A later turn begins with all digests of the earlier one; other tools are another prompt.
    """
    running = blake2b(digest_size=_DIGEST_BYTES)
    running.update(orjson.dumps(parsed.get("tools"), option=orjson.OPT_SORT_KEYS))
    found = []
    for piece in _pieces(parsed):
        running.update(piece)
        found.append(running.digest())
    return tuple(found)


def _pieces(parsed: Mapping[str, Any]) -> Iterator[bytes]:
    prompt = parsed.get("prompt")
    if isinstance(prompt, str):
        for start in range(0, len(prompt), _PROMPT_BLOCK_CHARACTERS):
            yield prompt[start : start + _PROMPT_BLOCK_CHARACTERS].encode("utf-8", "surrogatepass")
        return
    for message in parsed.get("messages") or ():
        yield orjson.dumps(message, option=orjson.OPT_SORT_KEYS)

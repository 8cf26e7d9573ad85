"""The start of a file that is read by ranges, with few bytes too many and few requests."""

from collections.abc import Callable

# The header of a later shard has some kilobytes, that of a first shard some megabytes (its tokenizer).
FIRST_STEP_BYTES = 64 << 10
LONGEST_STEP_BYTES = 2 << 20


class Ranged:
    """A reader over `fetch(start, end)`, of which it asks twice as much each time."""

    def __init__(
        self,
        fetch: Callable[[int, int], bytes],
        size_bytes: int,
        *,
        first_step_bytes: int = FIRST_STEP_BYTES,
    ) -> None:
        self._fetch = fetch
        self._size_bytes = size_bytes
        self._step_bytes = first_step_bytes
        self._fetched = 0
        self._ahead = bytearray()
        self._at = 0

    def read(self, size: int, /) -> bytes:
        while len(self._ahead) - self._at < size and self._fetched < self._size_bytes:
            end = min(self._size_bytes, self._fetched + max(self._step_bytes, size))
            piece = self._fetch(self._fetched, end)
            if not piece:
                break
            self._step_bytes = max(self._step_bytes, min(2 * self._step_bytes, LONGEST_STEP_BYTES))
            del self._ahead[: self._at]
            self._at = 0
            self._ahead += piece
            self._fetched += len(piece)
        taken = bytes(self._ahead[self._at : self._at + size])
        self._at += len(taken)
        return taken

"""What goes into the layer: the same on every machine. Of Python's own library, as is `compute`."""

import hashlib
import struct

EXPERTS, USED, HIDDEN, INNER = 8, 2, 512, 256
# One token at a time is decoding, several at once are a prompt: the kernels have a way for each.
PROMPTS = (1, 3, 32)
_BLOCK, _BLOCK_BYTES = 256, 144


def q4_k(name: str) -> bytes:
    """One of gate, up and down, of all experts: blocks of two half floats, then 140 bytes of integers."""
    blocks = EXPERTS * HIDDEN * INNER // _BLOCK
    raw = bytearray(_drawn(name, blocks * _BLOCK_BYTES))
    for at in range(0, len(raw), _BLOCK_BYTES):
        scale, minimum = struct.unpack_from("<HH", raw, at)
        struct.pack_into("<ee", raw, at, scale / 65536 * 2e-3, minimum / 65536 * 1e-2)
    return bytes(raw)


def activations(tokens: int) -> bytes:
    """[tokens, HIDDEN] of bfloat16: the upper halves of floats from -0.3 to 0.3."""
    drawn = struct.iter_unpack("<H", _drawn(f"activations {tokens}", 2 * tokens * HIDDEN))
    return b"".join(struct.pack("<f", (number / 65536 - 0.5) * 0.6)[2:] for (number,) in drawn)


def chosen(tokens: int) -> list[list[int]]:
    """[tokens, USED]: two experts, never the same one twice."""
    drawn = _drawn(f"chosen {tokens}", 2 * tokens)
    pairs = zip(drawn[::2], drawn[1::2], strict=True)
    return [[one % EXPERTS, (one + 1 + two % (EXPERTS - 1)) % EXPERTS] for one, two in pairs]


def weights(tokens: int) -> list[list[float]]:
    """[tokens, USED]: how much each of the chosen counts, 0 to 1."""
    drawn = [one / 256 for one in _drawn(f"weights {tokens}", USED * tokens)]
    return [drawn[at : at + USED] for at in range(0, len(drawn), USED)]


def _drawn(name: str, size: int) -> bytes:
    return hashlib.shake_128(name.encode()).digest(size)

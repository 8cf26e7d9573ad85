"""GGUF files written by hand, as the format's description says, and TinySeek's."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path

from wire.ggml_types import GGML_TYPES
from wire.gguf import Header, read_header

TINYSEEK = Path(__file__).parents[3] / "tests" / "fixtures" / "tinyseek"
SHARDS = sorted((TINYSEEK / "Q4_K_M").glob("*.gguf"))


def header_of(path: Path) -> Header:
    with path.open("rb") as file:
        return read_header(file)


def tinyseek(quant: str = "Q4_K_M") -> dict[str, tuple[Header, int]]:
    return {
        f"{quant}/{path.name}": (header_of(path), path.stat().st_size)
        for path in sorted((TINYSEEK / quant).glob("*.gguf"))
    }


UINT16, UINT32, INT32, FLOAT32, STRING, ARRAY = 2, 4, 5, 6, 8, 9
F32, Q4_K = 0, 12
Value = int | float | str | Sequence[str] | Sequence[int]
TensorOf = tuple[str, str, tuple[int, ...]]  # name, type, shape


class Short(int):
    """A number that is written as UINT16, as llama.cpp wants those of shards."""


class Signed(int):
    """A number that is written as INT32, as llama.cpp wants the number of tensors of all shards."""


_NUMBERS = ((Short, UINT16, "H"), (Signed, INT32, "i"), (int, UINT32, "I"), (float, FLOAT32, "f"))


def text(content: str) -> bytes:
    return struct.pack("<Q", len(content.encode())) + content.encode()


def value(content: Value) -> bytes:
    if isinstance(content, int | float):
        number, form = next(how for kind, *how in _NUMBERS if isinstance(content, kind))
        return struct.pack(f"<I{form}", number, content)
    if isinstance(content, str):
        return struct.pack("<I", STRING) + text(content)
    numbers = [entry for entry in content if isinstance(entry, int)]
    if numbers:
        return struct.pack(f"<IIQ{len(numbers)}i", ARRAY, INT32, len(numbers), *numbers)
    entries = b"".join(text(str(entry)) for entry in content)
    return struct.pack("<IIQ", ARRAY, STRING, len(content)) + entries


def start(values: Mapping[str, Value], tensors: int) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(values))
    return head + b"".join(text(key) + value(content) for key, content in values.items())


def tensor_bytes(kind: str, shape: Iterable[int]) -> int:
    block, block_bytes = {name: rest for name, *rest in GGML_TYPES.values()}[kind]
    return prod(shape) // block * block_bytes


def a_header(values: Mapping[str, Value], tensors: Sequence[TensorOf]) -> tuple[bytes, int]:
    """The header up to the data, and how many bytes of data follow: each tensor at 32 bytes."""
    numbers = {name: number for number, (name, _, _) in GGML_TYPES.items()}
    head, offset = start(values, len(tensors)), 0
    for name, kind, shape in tensors:
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += struct.pack("<IQ", numbers[kind], offset)
        offset += -(-tensor_bytes(kind, shape) // 32) * 32
    return head + bytes(-len(head) % 32), offset


def a_file(values: Mapping[str, Value], tensors: Sequence[str]) -> bytes:
    """Each tensor: 8 F32 numbers, which is also the alignment."""
    head, data_bytes = a_header(values, [(name, "F32", (8,)) for name in tensors])
    return head + bytes(data_bytes)


LAYER = ("attn_norm.weight", "attn_q.weight", "ffn_up.weight")
LLAMA: dict[str, Value] = {"general.architecture": "llama", "llama.block_count": 3}
NAMES = (
    "token_embd.weight",
    "output_norm.weight",
    *(f"blk.{layer}.{name}" for layer in range(3) for name in LAYER),
)

"""GGUF headers: what a model file says it holds.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

# name, elements in a block, bytes in a block; by the number in the file.
GGML_TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}

# A real header has 3 to 20 MB, nearly all of it the tokenizer. Beyond these it is damage or malice.
_MAX_HEADER_BYTES = 64 << 20
_MAX_STRING_BYTES = 8 << 20
_MAX_VALUES = 10_000
_MAX_TENSORS = 200_000
_MAX_TOKENS = 2_000_000
_MAX_DIMENSIONS = 4

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_TOKENS = "tokenizer.ggml.tokens"
_SKIP_BYTES = 1 << 20


class NotGguf(ValueError):
    """These bytes are no GGUF header that anything could load."""


class Reader(Protocol):
    """Bytes from the start of the file on, as an open file gives them."""

    def read(self, size: int, /) -> bytes: ...


class Ranged:
    """A reader over `fetch(start, end)`, of which it asks `step_bytes` at a time."""

    def __init__(
        self, fetch: Callable[[int, int], bytes], size_bytes: int, *, step_bytes: int = 4 << 20
    ) -> None:
        self._fetch = fetch
        self._size_bytes = size_bytes
        self._step_bytes = step_bytes
        self._fetched = 0
        self._ahead = bytearray()

    def read(self, size: int, /) -> bytes:
        while len(self._ahead) < size and self._fetched < self._size_bytes:
            end = min(self._size_bytes, self._fetched + max(self._step_bytes, size))
            piece = self._fetch(self._fetched, end)
            if not piece:
                break
            self._ahead += piece
            self._fetched += len(piece)
        taken = bytes(self._ahead[:size])
        del self._ahead[:size]
        return taken


@dataclass(frozen=True, slots=True)
class Tensor:
    """`offset`: from the start of the file. `size_bytes`: None for a type newer than our table."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int | None

    @property
    def end(self) -> int:
        return self.offset + (self.size_bytes or 0)


@dataclass(frozen=True, slots=True)
class Header:
    """`values`: all that are no arrays. `tokens`: the vocabulary, which only a first shard has."""

    version: int
    values: Mapping[str, str | int | float]
    tokens: tuple[str, ...] | None
    tensors: tuple[Tensor, ...]
    data_offset: int
    alignment: int

    @property
    def architecture(self) -> str | None:
        found = self.values.get("general.architecture")
        return found if isinstance(found, str) else None

    @property
    def chat_template(self) -> str | None:
        found = self.values.get("tokenizer.chat_template")
        return found if isinstance(found, str) else None

    def count(self, key: str) -> int | None:
        found = self.values.get(key)
        return found if isinstance(found, int) else None

    def of_architecture(self, name: str) -> int | None:
        return self.count(f"{self.architecture}.{name}")


def read_header(reader: Reader) -> Header:
    """NotGguf if it is none, is cut short, or announces more than any real file has."""
    bytes_ = _Bytes(reader)
    if (magic := bytes_.take(4)) != b"GGUF":
        raise NotGguf(f"it starts with {magic!r}, not with GGUF")
    version = bytes_.number("<I")
    if version not in {2, 3}:
        raise NotGguf(f"version {version} is not 2 or 3 (or the file is for big-endian machines)")
    tensors = bytes_.count("tensors", _MAX_TENSORS)
    values, tokens = _read_values(bytes_, bytes_.count("values", _MAX_VALUES))
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise NotGguf(f"general.alignment is {alignment!r}, no power of two")
    found = [_read_tensor(bytes_) for _ in range(tensors)]
    data_offset = -(-bytes_.taken // alignment) * alignment
    return Header(
        version=version,
        values=values,
        tokens=tokens,
        tensors=tuple(_placed(tensor, data_offset) for tensor in found),
        data_offset=data_offset,
        alignment=alignment,
    )


class _Bytes:
    """Takes from a reader no more than any real header has."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.taken = 0

    def take(self, size: int) -> bytes:
        if self.taken + size > _MAX_HEADER_BYTES:
            raise NotGguf(f"its header would exceed {_MAX_HEADER_BYTES} bytes")
        found = self._reader.read(size)
        self.taken += len(found)
        if len(found) < size:
            raise NotGguf(f"it ends after {self.taken} bytes, inside its header")
        return found

    def number(self, layout: str) -> int:
        (found,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return int(found)

    def count(self, of: str, most: int) -> int:
        found = self.number("<Q")
        if found > most:
            raise NotGguf(f"it announces {found} {of}, more than {most}")
        return found

    def string(self) -> str:
        # A token may be any bytes. Kept so that it can be compared, and printed without failing.
        return self.take(self.count("bytes of text", _MAX_STRING_BYTES)).decode(
            errors="backslashreplace"
        )

    def skip(self, size: int) -> None:
        if self.taken + size > _MAX_HEADER_BYTES:
            raise NotGguf(f"its header would exceed {_MAX_HEADER_BYTES} bytes")
        while size:
            size -= len(self.take(min(size, _SKIP_BYTES)))


def _read_values(
    bytes_: _Bytes, count: int
) -> tuple[dict[str, str | int | float], tuple[str, ...] | None]:
    values: dict[str, str | int | float] = {}
    tokens: tuple[str, ...] | None = None
    seen: set[str] = set()
    for _ in range(count):
        key = bytes_.string()
        if key in seen:
            raise NotGguf(f"it has {key} twice")
        seen.add(key)
        kind = bytes_.number("<I")
        if kind == _ARRAY:
            texts = _read_array(bytes_, key)
            tokens = texts if key == _TOKENS else tokens
        elif kind == _STRING:
            values[key] = bytes_.string()
        else:
            (values[key],) = struct.unpack(
                layout := _scalar(kind, key), bytes_.take(struct.calcsize(layout))
            )
    return values, tokens


def _read_array(bytes_: _Bytes, key: str) -> tuple[str, ...]:
    """Its texts where it is the vocabulary. Other arrays are stepped over."""
    kind = bytes_.number("<I")
    count = bytes_.number("<Q")
    if kind != _STRING:
        bytes_.skip(count * struct.calcsize(_scalar(kind, key)))
        return ()
    if count > _MAX_TOKENS:
        raise NotGguf(f"{key} has {count} entries, more than {_MAX_TOKENS}")
    if key == _TOKENS:
        return tuple(bytes_.string() for _ in range(count))
    for _ in range(count):
        bytes_.skip(bytes_.count("bytes of text", _MAX_STRING_BYTES))
    return ()


def _scalar(kind: int, key: str) -> str:
    if kind not in _SCALARS:
        raise NotGguf(f"{key} has the unknown type {kind}")
    return _SCALARS[kind]


def _read_tensor(bytes_: _Bytes) -> Tensor:
    name = bytes_.string()
    dimensions = bytes_.number("<I")
    if dimensions > _MAX_DIMENSIONS:
        raise NotGguf(f"{name} has {dimensions} dimensions, more than {_MAX_DIMENSIONS}")
    shape = struct.unpack(f"<{dimensions}Q", bytes_.take(8 * dimensions))
    kind, offset = bytes_.number("<I"), bytes_.number("<Q")
    if kind not in GGML_TYPES:
        return Tensor(name, f"type {kind}", shape, offset, None)
    type_name, block, block_bytes = GGML_TYPES[kind]
    if shape and shape[0] % block:
        raise NotGguf(f"{name} has rows of {shape[0]}, but {type_name} packs {block} together")
    return Tensor(name, type_name, shape, offset, math.prod(shape) // block * block_bytes)


def _placed(tensor: Tensor, data_offset: int) -> Tensor:
    offset = data_offset + tensor.offset
    return Tensor(tensor.name, tensor.type, tensor.shape, offset, tensor.size_bytes)

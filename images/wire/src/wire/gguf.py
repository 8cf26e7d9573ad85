"""GGUF headers: what a model file says it holds.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from wire.ggml_types import GGML_TYPES

# A real header has 3 to 20 MB, nearly all of it the tokenizer. Beyond these it is damage or malice.
_MAX_HEADER_BYTES = 32 << 20
_MAX_STRING_BYTES = 4 << 20
_MAX_VALUES = 10_000
_MAX_TENSORS = 100_000
_MAX_TEXTS = 1_000_000
_MAX_DIMENSIONS = 4
_MAX_BYTES = 1 << 62  # what offsets and sizes may come to; engines count both in 64 signed bits
# Lists of numbers that say something of each layer. Longer ones are about tokens.
_MAX_LAYERS = 1000

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
_TOKEN_TYPES = "tokenizer.ggml.token_type"  # noqa: S105 - no secret
_MERGES = "tokenizer.ggml.merges"
_SKIP_BYTES = 1 << 20
_LONGEST_NAME = 100


class NotGguf(ValueError):
    """These bytes are no GGUF header that anything could load."""


class Reader(Protocol):
    """Bytes from the start of the file on, as an open file gives them."""

    def read(self, size: int, /) -> bytes: ...


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
    """`values`: all that are no arrays. `lists`: arrays of up to 1000 numbers, as one for each layer.

    `tokens`: the vocabulary, which only a first shard has. `token_types` and `merges`: what else its
    tokenizer is made of; only where they were asked for.
    """

    version: int
    values: Mapping[str, str | int | float]
    lists: Mapping[str, tuple[int | float, ...]]
    tokens: tuple[str, ...] | None
    tensors: tuple[Tensor, ...]
    data_offset: int
    alignment: int
    token_types: tuple[int, ...] = ()
    merges: tuple[str, ...] = ()

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
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def of_architecture(self, name: str) -> int | None:
        return self.count(f"{self.architecture}.{name}")


def read_header(reader: Reader, *, whole_tokenizer: bool = False) -> Header:
    """NotGguf if it is none, is cut short, or announces more than any real file has."""
    bytes_ = _Bytes(reader)
    if (magic := bytes_.take(4)) != b"GGUF":
        raise NotGguf(f"it starts with {magic!r}, not with GGUF")
    version = bytes_.number("<I")
    if version not in {2, 3}:
        raise NotGguf(f"version {version} is not 2 or 3 (or the file is for big-endian machines)")
    tensors = bytes_.count("tensors", _MAX_TENSORS)
    said = _Said({}, {}, whole_tokenizer=whole_tokenizer)
    _read_values(bytes_, bytes_.count("values", _MAX_VALUES), said)
    alignment = said.values.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise NotGguf(f"general.alignment is {alignment!r}, no power of two")
    found = [_read_tensor(bytes_) for _ in range(tensors)]
    data_offset = -(-bytes_.taken // alignment) * alignment
    return Header(
        version=version,
        values=said.values,
        lists=said.lists,
        tokens=said.tokens,
        tensors=tuple(replace(tensor, offset=data_offset + tensor.offset) for tensor in found),
        data_offset=data_offset,
        alignment=alignment,
        token_types=said.token_types,
        merges=said.merges,
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

    def numbers(self, layout: str, count: int) -> tuple[int | float, ...]:
        whole = f"<{count}{layout[1:]}"
        return struct.unpack(whole, self.take(struct.calcsize(whole)))

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


@dataclass(slots=True)
class _Said:
    values: dict[str, str | int | float]
    lists: dict[str, tuple[int | float, ...]]
    tokens: tuple[str, ...] | None = None
    token_types: tuple[int, ...] = ()
    merges: tuple[str, ...] = ()
    whole_tokenizer: bool = False


def _read_values(bytes_: _Bytes, count: int, said: _Said) -> None:
    seen: set[str] = set()
    for _ in range(count):
        key = bytes_.string()
        if key in seen:
            raise NotGguf(f"it has {_short(key)} twice")
        seen.add(key)
        kind = bytes_.number("<I")
        if kind == _ARRAY:
            _read_array(bytes_, key, said)
        elif kind == _STRING:
            said.values[key] = bytes_.string()
        else:
            (said.values[key],) = bytes_.numbers(_scalar(kind, key), 1)


def _read_array(bytes_: _Bytes, key: str, said: _Said) -> None:
    """Keep the vocabulary, and short lists of numbers. Other arrays are stepped over."""
    kind = bytes_.number("<I")
    layout = "" if kind == _STRING else _scalar(kind, key)
    count = bytes_.number("<Q")
    if kind == _STRING:
        if count > _MAX_TEXTS:
            raise NotGguf(f"{_short(key)} has {count} entries, more than {_MAX_TEXTS}")
        if key == _TOKENS:
            said.tokens = tuple(bytes_.string() for _ in range(count))
            return
        if key == _MERGES and said.whole_tokenizer:
            said.merges = tuple(bytes_.string() for _ in range(count))
            return
        for _ in range(count):
            bytes_.skip(bytes_.count("bytes of text", _MAX_STRING_BYTES))
        return
    if key == _TOKEN_TYPES and said.whole_tokenizer:
        if count > _MAX_TEXTS:
            raise NotGguf(f"{key} has {count} entries, more than {_MAX_TEXTS}")
        said.token_types = tuple(int(number) for number in bytes_.numbers(layout, count))
        return
    if count <= _MAX_LAYERS:
        said.lists[key] = bytes_.numbers(layout, count)
        return
    bytes_.skip(count * struct.calcsize(layout))


def _scalar(kind: int, key: str) -> str:
    if kind == _ARRAY:
        raise NotGguf(f"{_short(key)} is an array of arrays, which no model has")
    if kind not in _SCALARS:
        raise NotGguf(f"{_short(key)} has the unknown type {kind}")
    return _SCALARS[kind]


def _read_tensor(bytes_: _Bytes) -> Tensor:
    name = bytes_.string()
    dimensions = bytes_.number("<I")
    if dimensions > _MAX_DIMENSIONS:
        raise NotGguf(f"{_short(name)} has {dimensions} dimensions, more than {_MAX_DIMENSIONS}")
    shape = struct.unpack(f"<{dimensions}Q", bytes_.take(8 * dimensions))
    kind, offset = bytes_.number("<I"), bytes_.number("<Q")
    values = math.prod(shape)
    if max(values, offset, *shape) > _MAX_BYTES:
        raise NotGguf(f"{_short(name)}, {shape} at {offset}, is larger than anything real")
    if kind not in GGML_TYPES:
        return Tensor(name, f"type {kind}", shape, offset, None)
    type_name, block, block_bytes = GGML_TYPES[kind]
    if shape and shape[0] % block:
        raise NotGguf(
            f"{_short(name)} has rows of {shape[0]}, but {type_name} packs {block} together"
        )
    return Tensor(name, type_name, shape, offset, values // block * block_bytes)


def _short(name: str) -> str:
    """A name that an error can quote, whatever the file says."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."

"""GGUF headers: what a model file says it holds, and everything that contradicts it.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

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

# Decoders all of whose layers of one kind hold the same tensors.
KNOWN_ARCHITECTURES = frozenset(
    {"deepseek2", "glm4", "glm4moe", "llama", "phi3", "qwen2", "qwen2moe", "qwen3", "qwen3moe"}
)

# A real header has 3 to 20 MB, nearly all of it the tokenizer. Beyond these it is damage or malice.
_MAX_HEADER_BYTES = 64 << 20
_MAX_STRING_BYTES = 8 << 20
_MAX_VALUES = 10_000
_MAX_TENSORS = 200_000
_MAX_TOKENS = 2_000_000
_MAX_DIMENSIONS = 4
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
_SKIP_BYTES = 1 << 20
_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_LAYER = re.compile(r"blk\.(?P<layer>\d+)\.(?P<name>.+)")
_DIFFERENCES_NAMED = 5


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


def problems(files: Mapping[str, tuple[Header, int]]) -> Iterator[str]:
    """Everything that contradicts itself in these files: path -> header and size of the file.

    Shards that belong together are told by their names. Nothing means that all are whole.
    """
    models: dict[str, dict[str, tuple[Header, int]]] = {}
    for path, file in sorted(files.items()):
        found = _SHARD.fullmatch(path)
        model = path if found is None else f"{found['stem']} of {found['count']}"
        models.setdefault(model, {})[path] = file
    for shards in models.values():
        missing = tuple(_missing_shards(shards))
        yield from missing
        for path, (header, size) in shards.items():
            yield from _misnumbered(path, header)
            yield from _not_in_file(path, header, size)
        yield from _repeated(shards)
        # What a missing shard holds would be reported tensor by tensor.
        if not missing:
            headers = [header for header, _ in shards.values()]
            yield from _miscounted(headers, next(iter(shards)))
            yield from _model_problems(headers, next(iter(shards)))


def _missing_shards(paths: Iterable[str]) -> Iterator[str]:
    found = [shard for path in paths if (shard := _SHARD.fullmatch(path))]
    here = {int(shard["number"]) for shard in found}
    for shard in found[:1]:
        count = int(shard["count"])
        for number in sorted(set(range(1, count + 1)) - here):
            yield f"{shard['stem']}-{number:05}-of-{count:05}.gguf is missing"


def _misnumbered(path: str, header: Header) -> Iterator[str]:
    shard = _SHARD.fullmatch(path)
    named = (int(shard["number"]), int(shard["count"])) if shard else (1, 1)
    # Numbers count from 0 in the header and from 1 in the name. A whole model has none.
    number, count = (header.count("split.no") or 0) + 1, header.count("split.count") or 1
    if (number, count) != named:
        yield f"{path}: its header says that it is shard {number} of {count}"


def _miscounted(headers: list[Header], path: str) -> Iterator[str]:
    here = sum(len(header.tensors) for header in headers)
    said = {header.count("split.tensors.count") for header in headers} - {None, here}
    for count in said:
        yield f"{path}: {here} tensors are here, but a header says {count}"


def _not_in_file(path: str, header: Header, size_bytes: int) -> Iterator[str]:
    for tensor in header.tensors:
        if tensor.end > size_bytes:
            yield f"{path}: {tensor.name} ends at byte {tensor.end}, but the file at {size_bytes}"
            return


def _repeated(shards: Mapping[str, tuple[Header, int]]) -> Iterator[str]:
    at: dict[str, str] = {}
    for path, (header, _) in shards.items():
        for tensor in header.tensors:
            if tensor.name in at:
                yield f"{path}: {tensor.name} is also in {at[tensor.name]}"
            at[tensor.name] = path


def _model_problems(headers: list[Header], path: str) -> Iterator[str]:
    said = {header.architecture for header in headers} - {None}
    if len(said) != 1:
        yield f"{path}: its architecture is {' and '.join(sorted(map(str, said))) or 'not said'}"
        return
    first = next(header for header in headers if header.architecture is not None)
    if first.architecture not in KNOWN_ARCHITECTURES:
        yield f"{path}: the architecture {first.architecture} is not a known one"
        return
    names = {tensor.name for header in headers for tensor in header.tensors}
    for needed in ("token_embd.weight", "output_norm.weight"):
        if needed not in names:
            yield f"{path}: {needed} is missing"
    yield from _layer_problems(first, names, path)


def _layer_problems(first: Header, names: set[str], path: str) -> Iterator[str]:
    layers: dict[int, set[str]] = {}
    for name in names:
        if found := _LAYER.fullmatch(name):
            layers.setdefault(int(found["layer"]), set()).add(found["name"])
    count = first.of_architecture("block_count") or 0
    if count > _MAX_LAYERS:
        yield f"{path}: block_count is {count}"
        return
    for layer in sorted(set(range(count)) - set(layers)):
        yield f"{path}: layer {layer} of {count} has no tensor at all"
    for layer in sorted(set(layers) - set(range(count))):
        yield f"{path}: there is a layer {layer}, but block_count is {count}"
    kinds: dict[str, list[int]] = {}
    for layer in sorted(layers):
        kinds.setdefault(_kind(first, layer, layers[layer]), []).append(layer)
    for alike in kinds.values():
        for layer in alike:
            others = [layers[other] for other in alike if other != layer]
            lacking = set.intersection(*others) - layers[layer] if others else set()
            for name in sorted(lacking):
                yield f"{path}: blk.{layer}.{name} is missing; all other layers of its kind have it"


def _kind(first: Header, layer: int, names: set[str]) -> str:
    """Layers of one kind hold the same tensors: dense first ones, experts, those that predict ahead."""
    count = first.of_architecture("block_count") or 0
    if layer >= count - (first.of_architecture("nextn_predict_layers") or 0):
        return "predicting ahead"
    leading = first.of_architecture("leading_dense_block_count")
    if leading is not None:
        return "dense" if layer < leading else "experts"
    return "experts" if any("_exps." in name for name in names) else "dense"


def tokenizer_agrees(header: Header, tokenizer_json: bytes) -> list[str]:
    """Where `tokenizer.json` numbers tokens otherwise than the GGUF does. Empty: they agree."""
    if header.tokens is None:
        return ["the GGUF has no vocabulary in its header"]
    try:
        vocabulary = _vocabulary(json.loads(tokenizer_json))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return [f"tokenizer.json can't be read: {type(error).__name__}: {error}"]
    differences = list(_differences(header.tokens, vocabulary))
    if len(differences) <= _DIFFERENCES_NAMED:
        return differences
    more = len(differences) - _DIFFERENCES_NAMED
    return [*differences[:_DIFFERENCES_NAMED], f"and {more} more tokens differ"]


def _vocabulary(tokenizer: Any) -> dict[int, str]:
    known = tokenizer["model"]["vocab"]
    if isinstance(known, dict):
        found = {int(number): str(token) for token, number in known.items()}
    else:
        # A Unigram model: pairs of token and score, numbered by their place.
        found = {number: str(token) for number, (token, _) in enumerate(known)}
    for added in tokenizer.get("added_tokens", ()):
        found[int(added["id"])] = str(added["content"])
    return found


def _differences(tokens: tuple[str, ...], vocabulary: Mapping[int, str]) -> Iterator[str]:
    for number in sorted(vocabulary.keys() | set(range(len(tokens)))):
        in_gguf = tokens[number] if 0 <= number < len(tokens) else None
        in_json = vocabulary.get(number)
        if not _same_token(in_gguf, in_json):
            yield f"token {number} is {in_gguf!r} in the GGUF and {in_json!r} in tokenizer.json"


def _same_token(in_gguf: str | None, in_json: str | None) -> bool:
    if in_json is None:
        # The converter fills the numbers that no token has.
        return in_gguf is None or re.fullmatch(r"\[PAD\d+\]", in_gguf) is not None
    # It also writes the blanks of added tokens as blanks.
    return in_gguf is not None and in_gguf.replace("▁", " ") == in_json.replace("▁", " ")

"""What contradicts itself in a model's files: shards, tensors, layers, and the tokenizer beside them."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from wire.gguf import Header, Tensor

# Decoders all of whose layers of one kind hold the same tensors.
KNOWN_ARCHITECTURES = frozenset(
    {"deepseek2", "glm4", "glm4moe", "llama", "phi3", "qwen2", "qwen2moe", "qwen3", "qwen3moe"}
)

_LAYER = re.compile(r"blk\.(?P<layer>\d+)\.(?P<name>.+)")
_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_DIFFERENCES_NAMED = 5
_MAX_LAYERS = 1000


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
            yield from _misplaced(path, header)
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


def _misplaced(path: str, header: Header) -> Iterator[str]:
    before: Tensor | None = None
    for tensor in sorted(header.tensors, key=lambda tensor: tensor.offset):
        if (tensor.offset - header.data_offset) % header.alignment:
            yield f"{path}: {tensor.name} is not at a multiple of {header.alignment} bytes"
            return
        if before is not None and before.end > tensor.offset:
            yield f"{path}: {before.name} and {tensor.name} overlap at byte {tensor.offset}"
            return
        before = tensor


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

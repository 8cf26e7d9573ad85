"""TinySeek in both forms of its files, each in a proven folder as the engine's container has it."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpu.proven import Weights, folder_of, receipted

_PREFIX = "deepseek2.attention"
_KV_B = "attn_kv_b.weight"


def older(fixtures: Path, quantisation: str, work: Path) -> Weights:
    shards = sorted((fixtures / quantisation).glob("*.gguf"))
    return _proven(work / f"older-{quantisation}", shards)


def newer(fixtures: Path, quantisation: str, work: Path) -> Weights:
    """With attn_k_b and attn_v_b in the place of attn_kv_b, in one file."""
    work.mkdir(parents=True, exist_ok=True)
    whole = work / f"TinySeek-{quantisation}-newer.gguf"
    _split(sorted((fixtures / quantisation).glob("*.gguf")), whole)
    return _proven(work / f"newer-{quantisation}", [whole])


def _split(shards: Sequence[Path], target: Path) -> None:
    # Only here: the older form needs no such package.
    import gguf  # noqa: PLC0415
    from gguf.quants import dequantize  # noqa: PLC0415

    readers = [gguf.GGUFReader(str(shard)) for shard in shards]
    fields = readers[0].fields
    said = {name: field.contents() for name, field in fields.items()}
    heads, lora = said[f"{_PREFIX}.head_count"], said[f"{_PREFIX}.kv_lora_rank"]
    key, value = said[f"{_PREFIX}.key_length"], said[f"{_PREFIX}.value_length"]
    rope = said["deepseek2.rope.dimension_count"]
    changed = {
        f"{_PREFIX}.head_count_kv": 1,
        f"{_PREFIX}.key_length": lora + rope,
        f"{_PREFIX}.value_length": lora,
    }
    writer = gguf.GGUFWriter(str(target), "deepseek2")
    for name, field in fields.items():
        if not name.startswith(("GGUF.", "split.")) and name != "general.architecture":
            _copy(writer, name, field, changed.get(name, said[name]))
    writer.add_uint32(f"{_PREFIX}.key_length_mla", key)
    writer.add_uint32(f"{_PREFIX}.value_length_mla", value)
    for reader in readers:
        for tensor in reader.tensors:
            if not tensor.name.endswith(_KV_B):
                writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
                continue
            layer = tensor.name.removesuffix(_KV_B)
            rows = dequantize(tensor.data, tensor.tensor_type).reshape(heads, -1, lora)
            keys, values = rows[:, : key - rope].transpose(0, 2, 1), rows[:, key - rope :]
            for half, part in (("attn_k_b", keys), ("attn_v_b", values)):
                stored = np.ascontiguousarray(part).astype(np.float16)
                writer.add_tensor(f"{layer}{half}.weight", stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy(writer: Any, name: str, field: Any, content: Any) -> None:
    import gguf  # noqa: PLC0415 - as above

    kind = field.types[0]
    if kind == gguf.GGUFValueType.ARRAY:
        writer.add_array(name, content)
    else:
        writer.add_key_value(name, content, kind)


def _proven(work: Path, shards: Sequence[Path]) -> Weights:
    contents = {f"weights/{shard.name}": shard for shard in shards}
    folder = work / folder_of("fixtures/tinyseek")
    for path, source in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / path)
    digests = {
        path: hashlib.sha256(source.read_bytes()).hexdigest() for path, source in contents.items()
    }
    return receipted("fixtures/tinyseek", work, digests)

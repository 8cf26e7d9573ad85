"""The engine's own reader of GGUF files, for exactly the files of one model and for both forms."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from ktransformers.util.custom_gguf import GGML_NAMES, GGMLQuantizationType, GGUFLoader

from kt_legacy_engine.kv_b import compose, to_compose
from kt_legacy_engine.refusals import Refused

_TYPES_NAMED = 5


class Shards(GGUFLoader):  # type: ignore[misc]
    """`tell`: is given the bytes of the tensors that were loaded, and of all.

    Upstream's own constructor reads every file in the folder, and below it.
    """

    def __init__(self, paths: Sequence[str], tell: Callable[[int, int], None]) -> None:
        self.tensor_info: dict[str, dict[str, Any]] = {}
        self.tensor_file_map: dict[str, str] = {}
        self.file_data_map: dict[str, np.memmap[Any, Any]] = {}
        self.gguf_file_meta: dict[str, Any] = {}
        self.tensor_device_map: dict[str, dict[str, str]] = {}
        for path in paths:
            self._open(path)
        self._refuse_unknown_types()
        self._sizes = {name: _size(info) for name, info in self.tensor_info.items()}
        self._halves = to_compose(self.tensor_info)
        for name, (k_b, _) in self._halves.items():
            # By these the engine looks up whether a tensor is there. It never reads this one as it is.
            self.tensor_info[name] = self.tensor_info[k_b]
            self.tensor_file_map[name] = self.tensor_file_map[k_b]
        self._tell = tell
        self._total = sum(self._sizes.values())
        self._begun: set[str] = set()

    def get_mmap_tensor(self, name: str) -> np.memmap[Any, Any]:
        if name not in self._begun:
            # Tensors are read one after the other: whatever was begun before is in place.
            self._tell(sum(self._sizes[begun] for begun in self._begun), self._total)
            self._begun.add(name)
        found: np.memmap[Any, Any] = super().get_mmap_tensor(name)
        return found

    def load_gguf_tensor(self, name: str, device: str = "cpu") -> torch.Tensor:
        if name not in self._halves:
            found: torch.Tensor = super().load_gguf_tensor(name, device)
            return found
        k_b, v_b = (
            super(Shards, self).load_gguf_tensor(half, device) for half in self._halves[name]
        )
        return compose(k_b, v_b)

    def loaded(self) -> None:
        self._tell(self._total, self._total)

    def _open(self, path: str) -> None:
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - upstream wants the name of it
                self.load_gguf(file)
        except (AssertionError, KeyError, ValueError) as error:
            raise _unreadable(f"{path}: {error!r}") from error
        self.file_data_map[path] = np.memmap(path, mode="r")

    def _refuse_unknown_types(self) -> None:
        unknown = [
            f"{name} is {GGMLQuantizationType(info['ggml_type']).name}"
            for name, info in self.tensor_info.items()
            if info["ggml_type"] not in GGML_NAMES
        ]
        if unknown:
            raise _unreadable(*unknown[:_TYPES_NAMED])


def _size(info: dict[str, Any]) -> int:
    return int(info["item_count"]) * int(np.dtype(info["item_type"]).itemsize)


def _unreadable(*why: str) -> Refused:
    return Refused(
        "this engine can't read these weights",
        why=why,
        next_step="choose a standard quantisation (as Q4_K_M), or a profile of another engine",
    )

"""Headers of model files on this host, and what was read of others before, on disk."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from orchestrator.core.inventory import Inventory
from wire import LockedFile
from wire.gguf import Header, NotGguf, read_header

_INVENTORY = TypeAdapter(Inventory)


class _Kept(BaseModel):
    """`version`: another one means that this program sorts tensors or reads shapes otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[2]
    inventory: Inventory


def read_local_header(folder: Path, file: LockedFile) -> Header | None:
    """None where the file is not there whole, or is no model file: a source may have it."""
    path = folder / file.path
    try:
        if not path.is_file() or path.stat().st_size != file.size_bytes:
            return None
        with path.open("rb") as content:
            return read_header(content)
    except (OSError, NotGguf):
        return None


def recall(cache: Path, key: str) -> Inventory | None:
    """What `keep` wrote under this key; None where that is not there, or damaged."""
    try:
        return _Kept.model_validate_json((cache / f"{key}.json").read_bytes()).inventory
    except (OSError, ValidationError):
        return None


def keep(cache: Path, key: str, inventory: Inventory) -> None:
    """A cache that can't be written costs a few megabytes the next time, and no more."""
    part = cache / f"{key}.{os.getpid()}.part"
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        try:
            part.write_text(_Kept(version=2, inventory=inventory).model_dump_json(), "utf-8")
            part.replace(cache / f"{key}.json")
        finally:
            part.unlink(missing_ok=True)

"""What the headers of a profile's model files say: of files on this host, else read from the sources.

A few megabytes of a model of 400 GB, read once: what they come to is kept, by content of the lock.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from orchestrator.adapters.header_files import keep, read_local_header, recall
from orchestrator.core.errors import BadConfiguration, VerificationFailed
from orchestrator.core.inventory import Inventory, inventory_of
from orchestrator.core.locking import SHARD, SourceUnavailable, describe
from wire import Lock, LockedFile
from wire.gguf import Header, NotGguf, read_header
from wire.gguf_checks import problems
from wire.order import Source
from wire.ranged import Ranged

_PROBLEMS_TOLD = 5


class Pieces(Protocol):
    """Reads a part of a file at a source. SourceUnavailable when it can't be asked, or refuses."""

    def piece(self, source: Source, path: str, start: int, end: int) -> bytes: ...


def read_inventory(
    lock: Lock, sources: Sequence[Source], folders: Sequence[Path], hubs: Pieces, cache: Path
) -> Inventory | None:
    """None where the model is no GGUF, or neither a folder nor a source has all headers.

    `folders` hold files under their locked paths. Raises VerificationFailed for headers that no
    engine could load, and BadConfiguration for files of several models.
    """
    files = _model_files(lock)
    if not files:
        return None
    key = _content_key(files)
    if (known := recall(cache, key)) is not None:
        return known
    headers = _read_all(files, sources, folders, hubs)
    if headers is None:
        return None
    if found := tuple(problems(headers)):
        raise _contradictory(lock, found)
    inventory = inventory_of(headers)
    keep(cache, key, inventory)
    return inventory


def _model_files(lock: Lock) -> tuple[LockedFile, ...]:
    """The lock's GGUF files, which must be the shards of one model."""
    files = tuple(file for file in lock.files if file.path.endswith(".gguf"))
    shards = ((file.path, SHARD.match(file.path)) for file in files)
    models = {found["stem"] if found else path for path, found in shards}
    if len(models) > 1:
        raise BadConfiguration(
            f"the lock of {lock.repo} holds files of several models",
            why=", ".join(sorted(models)),
            next_step="narrow `patterns` in the profile to one of them, and make the lock anew: "
            "python3 -m orchestrator pull --profile NAME --update-lock",
        )
    return files


def _content_key(files: Iterable[LockedFile]) -> str:
    said = "".join(f"{file.sha256} {file.size_bytes} {file.path}\n" for file in files)
    return hashlib.sha256(said.encode()).hexdigest()


def _read_all(
    files: Iterable[LockedFile], sources: Sequence[Source], folders: Sequence[Path], hubs: Pieces
) -> Mapping[str, tuple[Header, int]] | None:
    headers: dict[str, tuple[Header, int]] = {}
    left = list(sources)
    for file in files:
        local = (read_local_header(folder, file) for folder in folders)
        header = next((found for found in local if found is not None), None)
        if header is None:
            header = _read_remote(file, left, hubs)
        if header is None:
            return None
        headers[file.path] = header, file.size_bytes
    return headers


def _read_remote(file: LockedFile, left: list[Source], hubs: Pieces) -> Header | None:
    """From the first source that can be read. One that can't is taken out of `left`.

    VerificationFailed where what could be read is no header.
    """
    wrong: list[str] = []
    for source in tuple(left):
        fetch = partial(hubs.piece, source, file.path)
        try:
            return read_header(Ranged(fetch, file.size_bytes))
        except SourceUnavailable:
            left.remove(source)
        except NotGguf as error:
            wrong.append(f"{describe(source)}: {error}")
    if wrong:
        raise VerificationFailed(
            f"{file.path} is no model file",
            why=tuple(wrong),
            next_step="look for another revision or quantisation of this model, or at what stands "
            "between this host and its sources",
        )
    return None


def _contradictory(lock: Lock, found: Sequence[str]) -> VerificationFailed:
    more = len(found) - _PROBLEMS_TOLD
    told = [*found[:_PROBLEMS_TOLD], *([f"and {more} more"] if more > 0 else [])]
    return VerificationFailed(
        f"the headers of {lock.repo} contradict themselves, so no engine could load them",
        why=tuple(told),
        next_step="look for another revision or quantisation of this model, and make its lock",
    )

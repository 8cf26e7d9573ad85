"""What compose.yaml gives the container of any engine, in a folder: proven weights, lock, key, port."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from ports import free_port
from wire import Lock, LockedFile, ProvenFile, Receipt

IMAGES = Path(__file__).resolve().parents[1] / "images"


def prove(home: Path, files: Mapping[str, bytes]) -> Lock:
    """`home/weights` and `home/lock.json`, as the download leaves them. `files`: content by path."""
    locked = tuple(
        LockedFile(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        for path, data in files.items()
    )
    lock = Lock(repo="owner/name", revision="0123456789" * 4, files=locked)
    folder = home / "weights" / lock.folder
    proven = []
    for file in locked:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[file.path])
        seen = path.stat()
        proven.append(ProvenFile(**file.model_dump(), mtime_ns=seen.st_mtime_ns, inode=seen.st_ino))
    receipt = Receipt(repo=lock.repo, revision=lock.revision, files=tuple(proven))
    (folder / "receipt.json").write_text(receipt.model_dump_json())
    (home / "lock.json").write_text(lock.model_dump_json())
    return lock


def weights_in(home: Path) -> Path:
    """The one folder that `prove` filled."""
    (folder,) = (home / "weights").glob("*/*/")
    return folder


def environment(home: Path, key: str, engine: str, *more: Path) -> dict[str, str]:
    """For the program of `images/inference/ENGINE`, whose key is written. `more`: sources besides."""
    (home / "key").write_text(f"{key}\n")
    own = ("wire/src", "inference/placing/src", f"inference/{engine}/src")
    sources = (*more, *(IMAGES / source for source in own))
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, sources)),
        "LOCK_FILE": str(home / "lock.json"),
        "WEIGHTS_DIR": str(home / "weights"),
        "API_KEY_FILE": str(home / "key"),
        "LISTEN_PORT": str(free_port()),
    }

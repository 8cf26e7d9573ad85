"""Repositories as a folder holds them: commits, files, and the hashes a hub publishes of them."""

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LFS_SUFFIXES = (".gguf", ".safetensors", ".bin")
LFS_FROM_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Blob:
    """One file's content. `oid`: the git blob sha1 of it, or of its pointer where it is in LFS."""

    on_disk: Path
    size_bytes: int
    sha256: str
    oid: str
    pointer_bytes: int | None

    @property
    def lfs(self) -> bool:
        return self.pointer_bytes is not None

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.oid


class Unknown(Exception):
    """There is no such repository, revision or file."""


class Repositories:
    """All below one folder. `main` is what the folder held when it was first looked at."""

    def __init__(self, root: Path, spare: Path) -> None:
        self._root = root
        self._spare = spare
        self._lock = threading.RLock()
        self._commits: dict[str, dict[str, dict[str, Blob]]] = {}

    def files(self, repo: str, revision: str | None = None) -> Mapping[str, Blob]:
        """Unknown if there is no such thing. None: `main`."""
        with self._lock:
            return dict(self._known(repo)[self.resolve(repo, revision)])

    def resolve(self, repo: str, revision: str | None = None) -> str:
        with self._lock:
            commits = self._known(repo)
            if revision is None or revision in {"main", "master"}:
                revision = next(reversed(commits), "main")
            if revision not in commits:
                raise Unknown(revision)
            return revision

    def exists(self, repo: str) -> bool:
        try:
            with self._lock:
                self._known(repo)
        except Unknown:
            return False
        return True

    def push(self, repo: str, contents: Mapping[str, bytes]) -> str:
        with self._lock:
            files = dict(self.files(repo))
            files |= {path: self._keep(path, content) for path, content in contents.items()}
            commit = _commit_of(files)
            self._known(repo)[commit] = files
            return commit

    def replace(self, repo: str, path: str, content: bytes) -> None:
        with self._lock:
            blob = self._keep(path, content)
            for files in self._known(repo).values():
                if path in files:
                    files[path] = blob

    def vanish(self, repo: str, revision: str | None) -> None:
        with self._lock:
            del self._known(repo)[self.resolve(repo, revision)]

    def _known(self, repo: str) -> dict[str, dict[str, Blob]]:
        if repo not in self._commits:
            folder = self._root / repo
            owner, _, name = repo.partition("/")
            if owner in {"", "_index"} or name in {"", ".", ".."} or not folder.is_dir():
                raise Unknown(repo)
            files = {
                path.relative_to(folder).as_posix(): _blob(path)
                for path in sorted(folder.rglob("*"))
                if path.is_file()
            }
            self._commits[repo] = {_commit_of(files): files}
        return self._commits[repo]

    def _keep(self, path: str, content: bytes) -> Blob:
        kept = self._spare / hashlib.sha256(content).hexdigest() / Path(path).name
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(content)
        return _blob(kept)


def _blob(path: Path) -> Blob:
    size = path.stat().st_size
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha256.update(block)
    digest = sha256.hexdigest()
    if path.name.endswith(LFS_SUFFIXES) or size > LFS_FROM_BYTES:
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {size}\n"
        return Blob(path, size, digest, _git_sha1(pointer.encode()), len(pointer))
    return Blob(path, size, digest, _git_sha1(path.read_bytes()), None)


def _git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324 - git's


def _commit_of(files: Mapping[str, Blob]) -> str:
    tree = "".join(f"{path}\0{blob.sha256}\n" for path, blob in sorted(files.items()))
    return hashlib.sha1(tree.encode()).hexdigest()  # noqa: S324 - git's

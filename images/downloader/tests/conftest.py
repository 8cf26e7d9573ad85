"""A source folder, its lock, and the program: what most tests of the `weights` job begin with."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from downloader.publish import Means, publish
from downloader.sources.folder import FolderSource
from downloader.world import World
from images.downloader.tests.support import QUICK, a_world
from wire import Lock, LockedFile
from wire.order import Folder, Order, Tuning

IMAGES = Path(__file__).parents[2]
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def source_dir(tmp_path: Path) -> Path:
    """Three small files, one of them empty, two of them in a folder."""
    folder = tmp_path / "source"
    (folder / "Q4").mkdir(parents=True)
    (folder / "Q4" / "one.bin").write_bytes(b"first shard " * 1000)
    (folder / "Q4" / "two.bin").write_bytes(b"second shard " * 1000)
    (folder / "empty.txt").write_bytes(b"")
    return folder


@pytest.fixture
def weights_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    return folder


@pytest.fixture
def lock_of() -> Callable[[Path], Lock]:
    """The lock of all files in a folder. The hashes are those of the program `sha256sum`."""

    def build(folder: Path) -> Lock:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        command = ["sha256sum", "--", *(str(path) for path in paths)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return Lock(
            repo="owner/model",
            revision=REVISION,
            files=tuple(
                LockedFile(
                    path=path.relative_to(folder).as_posix(),
                    size_bytes=path.stat().st_size,
                    sha256=line[:64],
                )
                for path, line in zip(paths, lines.splitlines(), strict=True)
            ),
        )

    return build


@pytest.fixture
def lock(lock_of: Callable[[Path], Lock], source_dir: Path) -> Lock:
    return lock_of(source_dir)


@pytest.fixture
def published(weights_dir: Path, lock: Lock) -> Path:
    """The folder where the lock's files belong. Nothing is in it yet."""
    return weights_dir / lock.folder


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def world(said: list[str]) -> World:
    """A world without time, that remembers what was said."""
    return a_world(say=said.append)


@pytest.fixture
def run(lock: Lock, source_dir: Path, weights_dir: Path, world: World) -> Callable[..., None]:
    """Publish, of this test's own things whatever is not given."""

    def publish_it(
        lock: Lock = lock,
        source_dir: Path = source_dir,
        world: World = world,
        tuning: Tuning = QUICK,
    ) -> None:
        order = Order(lock=lock, sources=(Folder(),), tuning=tuning)
        publish(order, Means(weights_dir=weights_dir, source_dir=source_dir), world)

    return publish_it


@pytest.fixture
def environment(tmp_path: Path, source_dir: Path, weights_dir: Path, lock: Lock) -> dict[str, str]:
    """What the program is told, all of it in this test's own folders."""
    order_file = tmp_path / "order.json"
    order_file.write_text(Order(lock=lock, sources=(Folder(),), tuning=QUICK).model_dump_json())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return {
        "ORDER_FILE": str(order_file),
        "SOURCE_DIR": str(source_dir),
        "WEIGHTS_DIR": str(weights_dir),
        "TMPDIR": str(scratch),
        "PYTHONPATH": os.pathsep.join(
            str(IMAGES / part / "src") for part in ("wire", "downloader")
        ),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": os.environ["PATH"],
    }


@pytest.fixture
def program() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run `python -m downloader` to its end; `before` is a command that runs it."""

    def run(
        environment: Mapping[str, str], *arguments: str, before: tuple[str, ...] = ()
    ) -> "subprocess.CompletedProcess[str]":
        command = [*before, sys.executable, "-m", "downloader", *arguments]
        return subprocess.run(command, env=environment, check=False, capture_output=True, text=True)

    return run


@pytest.fixture
def sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources may be asked for sizes, and for nothing else."""

    def refuse(_source: FolderSource, file: LockedFile, _start: int, _stop: int) -> NoReturn:
        pytest.fail(f"{file.path} was read")

    monkeypatch.setattr(FolderSource, "open", refuse)

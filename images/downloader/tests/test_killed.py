"""A run that is stopped or killed anywhere, and two runs at once."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from downloader.exclusive import CLAIM_NAME, exclusive
from downloader.sources.base import Reader
from downloader.sources.folder import FolderSource
from downloader.world import World
from images.downloader.tests.support import TINY, a_world
from wire import Lock, LockedFile, discrepancies, read_receipt, stat_files

STALLING = Path(__file__).parent / "stalling.py"
STEPS = ("open", "os.mkdir", "os.rename", "os.remove", "os.truncate", "fcntl.flock")


ONE_STREAM = TINY.model_copy(update={"streams": 1})

Run = Callable[..., None]


def is_proven(lock: Lock, folder: Path) -> bool:
    return not list(discrepancies(lock, read_receipt(folder), stat_files(folder, lock)))


@pytest.fixture
def halfway(environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """A run of one stream that has half of the first file and waits for a byte on its input."""
    order_file = Path(environment["ORDER_FILE"])
    one_stream = order_file.read_text().replace('"streams":4', '"streams":1')
    order_file.write_text(one_stream)
    with subprocess.Popen(
        [sys.executable, str(STALLING)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if line == "half\n":
                break
        yield run
        run.kill()


def test_a_kill_in_the_middle_of_a_part_leaves_only_parts_and_the_next_run_goes_on(
    halfway: "subprocess.Popen[str]",
    environment: dict[str, str],
    program: Callable[..., "subprocess.CompletedProcess[str]"],
    lock: Lock,
    published: Path,
) -> None:
    halfway.kill()
    halfway.wait()
    left = {path.name for path in (published / "Q4").iterdir()}

    again = program(environment)

    assert left == {"one.bin.part", "one.bin.part.map", "two.bin.part", "two.bin.part.map"}
    assert again.returncode == 0, again.stderr
    assert is_proven(lock, published)
    assert list(published.rglob("*.part*")) == []


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_signal_ends_the_run_within_a_moment_and_keeps_the_parts(
    number: signal.Signals,
    exit_code: int,
    halfway: "subprocess.Popen[str]",
    published: Path,
) -> None:
    halfway.send_signal(number)
    _, errors = halfway.communicate(timeout=10)

    assert halfway.returncode == exit_code
    assert errors.startswith(f"stopped by {number.name}")
    assert (published / "Q4" / "one.bin.part.map").exists()
    assert not (published / "Q4" / "one.bin").exists()
    assert read_receipt(published) is None


def test_a_second_run_waits_says_so_and_then_finds_everything_proven(
    halfway: "subprocess.Popen[str]", environment: dict[str, str], source_dir: Path, published: Path
) -> None:
    without_source = {**environment, "SOURCE_DIR": str(source_dir / "nowhere")}
    with subprocess.Popen(
        [sys.executable, "-m", "downloader"], env=without_source, stdout=subprocess.PIPE, text=True
    ) as second:
        assert second.stdout is not None
        first_line = second.stdout.readline()
        halfway.communicate("go on\n")
        rest = second.stdout.read()

    assert first_line == f"another run is at work in {published}: waiting for it to end\n"
    assert halfway.returncode == 0
    assert rest == "already proven: 3 files, 25000 bytes\n"
    assert second.returncode == 0


def test_a_killed_run_holds_nobody_up(
    halfway: "subprocess.Popen[str]", published: Path, world: World, said: list[str]
) -> None:
    halfway.kill()
    halfway.wait()

    with exclusive(published, world):
        pass

    assert (published / CLAIM_NAME).exists()
    assert said == []


def test_a_waiting_run_counts_as_alive(tmp_path: Path, world: World, said: list[str]) -> None:
    beats: list[None] = []
    looks = iter(range(3))

    def give_up_after_three_looks(_: float) -> None:
        if next(looks, None) is None:
            raise TimeoutError

    waiting = a_world(
        sleep=give_up_after_three_looks, say=said.append, beat=lambda: beats.append(None)
    )
    second = exclusive(tmp_path, waiting)

    with exclusive(tmp_path, world), pytest.raises(TimeoutError):
        second.__enter__()

    assert len(beats) == 4
    assert len(said) == 1


class Slow:
    """Gives a few bytes at a time, and counts each as a step."""

    def __init__(self, content: bytes, step: Callable[[], None]) -> None:
        self._content = content
        self._step = step

    def readinto(self, buffer: memoryview, /) -> int:
        self._step()
        piece, self._content = self._content[:5000], self._content[5000:]
        buffer[: len(piece)] = piece
        return len(piece)


def killed_at(last_step: int, run: Run, weights_dir: Path) -> bool:
    """Publish in a child that is killed at its n-th step on the disk; False if it ended before."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
        return os.WIFSIGNALED(status)
    # What follows is the child's; it must never return into the test.
    try:
        taken = 0

        def step() -> None:
            nonlocal taken
            taken += 1
            if taken == last_step:
                os.kill(os.getpid(), signal.SIGKILL)

        def on_event(event: str, arguments: tuple[object, ...]) -> None:
            if event in STEPS and (
                event in {"fcntl.flock", "os.truncate"} or str(weights_dir) in str(arguments)
            ):
                step()

        @contextmanager
        def stepped(
            source: FolderSource, file: LockedFile, start: int, stop: int
        ) -> Iterator[Reader]:
            yield Slow((source.folder / file.path).read_bytes()[start:stop], step)

        FolderSource.open = stepped  # type: ignore[method-assign, assignment]
        sys.addaudithook(on_event)
        run(tuning=ONE_STREAM)
        os._exit(0)
    finally:
        os._exit(99)


def nothing_yet(_source_dir: Path, _published: Path) -> None:
    pass


def one_right_and_one_wrong(source_dir: Path, published: Path) -> None:
    shutil.copytree(source_dir, published)
    (published / "Q4" / "two.bin").write_bytes(b"wrong")


@pytest.mark.parametrize("start", [nothing_yet, one_right_and_one_wrong])
def test_killed_at_any_step_no_final_name_lies_and_the_next_run_repairs(
    start: Callable[[Path, Path], None],
    lock: Lock,
    source_dir: Path,
    published: Path,
    run: Run,
) -> None:
    weights_dir = published.parents[1]
    for step in range(1, 1000):
        shutil.rmtree(weights_dir)
        weights_dir.mkdir()
        start(source_dir, published)
        wrong_before = {
            path: path.read_bytes()
            for path in published.rglob("*.bin")
            if path.read_bytes() != (source_dir / path.relative_to(published)).read_bytes()
        }
        if not killed_at(step, run, weights_dir):
            break
        for file in lock.files:
            final = published / file.path
            right = (source_dir / file.path).read_bytes()
            if final.exists():
                assert final.read_bytes() in (right, wrong_before.get(final))
        assert read_receipt(published) is None or is_proven(lock, published)

        run(tuning=ONE_STREAM)

        assert is_proven(lock, published)
        assert list(weights_dir.rglob("*.part*")) == []
        for file in lock.files:
            assert (published / file.path).read_bytes() == (source_dir / file.path).read_bytes()
    assert step > 20

"""`python -m downloader`: its exit codes, and its words on what to do next."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from images.downloader.tests.support import QUICK
from wire import Lock, discrepancies, read_receipt, stat_files
from wire.order import Folder, Order

REPOSITORY = Path(__file__).parents[3]

Program = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def as_no_root() -> tuple[str, ...]:
    """A command in front of the program, under which root too is bound to the rights of files."""
    if os.geteuid():
        return ()
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


def order_of(lock: Lock, folder: Path) -> Path:
    order_file = folder / "the-order.json"
    order_file.write_text(Order(lock=lock, sources=(Folder(),), tuning=QUICK).model_dump_json())
    return order_file


def test_the_real_model_is_published_from_its_lock_and_proven_at_once_the_second_time(
    environment: dict[str, str], program: Program, weights_dir: Path, tmp_path: Path
) -> None:
    lock_file = REPOSITORY / "configs" / "locks" / "demo.json"
    lock = Lock.model_validate_json(lock_file.read_bytes())
    environment |= {
        "ORDER_FILE": str(order_of(lock, tmp_path)),
        "SOURCE_DIR": str(REPOSITORY / "tests" / "fixtures" / "tinyseek"),
    }

    first = program(environment)
    second = program(environment)

    folder = weights_dir / "appliance--TinySeek" / "80d2e845483a"
    assert first.returncode == 0, first.stderr
    assert not list(discrepancies(lock, read_receipt(folder), stat_files(folder, lock)))
    assert second.returncode == 0
    assert second.stdout == "already proven: 3 files, 12349824 bytes\n"


def test_a_flipped_byte_ends_with_6_the_file_both_hashes_and_the_next_step(
    environment: dict[str, str], program: Program, source_dir: Path, lock: Lock
) -> None:
    shard = source_dir / "Q4" / "one.bin"
    shard.write_bytes(b"F" + shard.read_bytes()[1:])
    sha256sum = subprocess.run(
        ["sha256sum", str(shard)], check=True, capture_output=True, text=True
    ).stdout[:64]

    run = program(environment)

    assert run.returncode == 6
    what, why, next_step = run.stderr.splitlines()
    assert what == "error: 1 of 3 files are not what the lock asks for"
    assert why.startswith(
        f"why: Q4/one.bin: expected sha256 {lock.files[0].sha256}, found {sha256sum};"
    )
    assert next_step.startswith("next: ")


def test_a_missing_source_ends_with_5_and_names_it(
    environment: dict[str, str], program: Program, source_dir: Path
) -> None:
    shutil.rmtree(source_dir)

    run = program(environment)

    assert run.returncode == 5
    assert f"{source_dir}/Q4/one.bin" in run.stderr
    assert "No such file or directory" in run.stderr


def test_an_unreadable_source_file_ends_with_5_and_the_systems_words(
    environment: dict[str, str], program: Program, source_dir: Path, as_no_root: tuple[str, ...]
) -> None:
    (source_dir / "Q4" / "one.bin").chmod(0)

    run = program(environment, before=as_no_root)

    assert run.returncode == 5
    assert f"{source_dir}/Q4/one.bin" in run.stderr
    assert "Permission denied" in run.stderr


def test_a_weights_folder_that_is_not_ours_ends_with_2_and_the_chown_to_run(
    environment: dict[str, str], program: Program, weights_dir: Path, as_no_root: tuple[str, ...]
) -> None:
    weights_dir.chmod(0o555)

    run = program(environment, before=as_no_root)

    assert run.returncode == 2
    assert str(weights_dir) in run.stderr
    assert f"chown -R {os.geteuid()}:{os.getegid()}" in run.stderr


def test_proven_weights_on_a_read_only_disk_are_as_good(
    environment: dict[str, str],
    program: Program,
    weights_dir: Path,
    published: Path,
    as_no_root: tuple[str, ...],
) -> None:
    assert program(environment).returncode == 0
    for path in (weights_dir, published, *published.iterdir()):
        path.chmod(0o555)

    assert program(environment, before=as_no_root).returncode == 0


def test_a_weights_folder_that_is_not_there_is_not_made(
    environment: dict[str, str], program: Program, weights_dir: Path
) -> None:
    weights_dir.rmdir()

    run = program(environment)

    assert run.returncode == 2
    assert f"WEIGHTS_DIR {weights_dir} is not a folder" in run.stderr
    assert not weights_dir.exists()


def test_a_file_system_that_refuses_a_write_ends_with_5_and_the_systems_words(
    environment: dict[str, str], program: Program, weights_dir: Path
) -> None:
    # Files of more than 8 KiB are refused, as FAT refuses those of 4 GiB.
    small_files_only = ("bash", "-c", 'ulimit -f 8; exec "$@"', "bash")

    run = program(environment, before=small_files_only)

    assert run.returncode == 5
    assert "File too large" in run.stderr
    assert list(weights_dir.rglob("receipt.json")) == []
    assert list(weights_dir.rglob("*.bin")) == []


@pytest.mark.parametrize("name", ["ORDER_FILE", "SOURCE_DIR", "WEIGHTS_DIR"])
@pytest.mark.parametrize("value", [None, ""])
def test_a_setting_that_is_missing_or_empty_ends_with_2_and_is_named(
    environment: dict[str, str], program: Program, name: str, value: str | None
) -> None:
    del environment[name]
    if value is not None:
        environment[name] = value

    run = program(environment)

    assert run.returncode == 2
    assert f"why: {name} is not set or empty" in run.stderr


def test_an_order_that_is_not_there_ends_with_2(
    environment: dict[str, str], program: Program
) -> None:
    environment["ORDER_FILE"] += ".not"

    run = program(environment)

    assert run.returncode == 2
    assert "No such file or directory" in run.stderr


def test_an_order_that_is_no_order_ends_with_2_and_every_reason(
    environment: dict[str, str], program: Program
) -> None:
    Path(environment["ORDER_FILE"]).write_text('{"lock": {"repo": "model", "files": []}}')

    run = program(environment)

    assert run.returncode == 2
    assert {"lock.repo", "lock.revision", "lock.files", "sources"} == {
        line.split(":")[1].strip() for line in run.stderr.splitlines() if line.startswith("why: ")
    }


@pytest.mark.parametrize("path", ["../escaped.gguf", "/tmp/escaped.gguf", "Q4/../../escaped.gguf"])
def test_a_lock_that_leads_out_of_the_folder_is_refused_and_writes_nothing(
    environment: dict[str, str], program: Program, weights_dir: Path, path: str
) -> None:
    text = Path(environment["ORDER_FILE"]).read_text().replace("Q4/one.bin", path)
    Path(environment["ORDER_FILE"]).write_text(text)

    run = program(environment)

    assert run.returncode == 2
    assert "is not a plain relative path" in run.stderr
    assert list(weights_dir.iterdir()) == []


def test_the_health_check_needs_nothing_but_the_standard_library(
    environment: dict[str, str],
) -> None:
    code = "import sys, downloader.alive; print([m for m in sys.modules if 'pydantic' in m])"
    command = [sys.executable, "-c", code]

    run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)

    assert run.stdout == "[]\n"


def test_the_health_check_passes_after_progress_and_fails_without_it(
    environment: dict[str, str], program: Program
) -> None:
    def health() -> int:
        command = [sys.executable, "-m", "downloader.alive"]
        return subprocess.run(command, env=environment, check=False, capture_output=True).returncode

    before = health()
    program(environment)
    after = health()
    os.utime(Path(environment["TMPDIR"]) / "alive", (1, 1))
    long_after = health()

    assert (before, after, long_after) == (1, 0, 1)

"""Nothing serves on weights that are not proven, and what was proven once needs no source any more."""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.scenario import PARIS, ROOT, Appliance, eventually
from wire import Lock

LOCK = Lock.model_validate_json((ROOT / "configs" / "locks" / "demo.json").read_bytes())
SHARD = LOCK.files[1]
NOT_PROVEN = "the engine does not start: the weights in"
AFTER_WEIGHTS = ("inference", "gateway", "webui")


def a_source(folder: Path) -> Path:
    """A copy of what the profile takes its weights from, for a test to spoil."""
    for file in LOCK.files:
        copy = folder / file.path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / "tests" / "fixtures" / "tinyseek" / file.path, copy)
    return folder


def flip_a_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x01]))


def revision_folder(stack: Appliance) -> Path:
    return stack.home / "weights" / LOCK.folder


def receipt(stack: Appliance) -> Path:
    return revision_folder(stack) / "receipt.json"


def up_until(stack: Appliance, service: str) -> None:
    """`up`, interrupted as soon as it has proven all that stands before `service`."""
    process = stack.start("up")
    eventually(lambda: process.poll() is not None or stack.container(service), f"{service} is made")
    process.terminate()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err


def refused_once_more(stack: Appliance) -> bool:
    """Docker has started the engine's container again, and once more in vain."""
    container = stack.container("inference")
    again = container is not None and container.attrs["RestartCount"] > 0
    return again and stack.logs("inference").count(NOT_PROVEN) > 1


def test_a_flipped_byte_in_the_source_is_named_and_nothing_starts(
    new_appliance: Callable[..., Appliance], tmp_path: Path
) -> None:
    source = a_source(tmp_path / "source")
    flip_a_byte(source / SHARD.path)
    found = hashlib.sha256((source / SHARD.path).read_bytes()).hexdigest()
    stack = new_appliance(source_dir=str(source))

    refused = stack.run("up")

    assert refused.returncode == 6, refused.stderr
    error = refused.stderr.rpartition("error: ")[2]
    for named in (SHARD.path, SHARD.sha256, found):
        assert named in error
    assert "Traceback" not in refused.stderr
    assert [name for name in AFTER_WEIGHTS if stack.container(name)] == []
    assert not receipt(stack).exists()

    shutil.copyfile(ROOT / "tests" / "fixtures" / "tinyseek" / SHARD.path, source / SHARD.path)
    up_until(stack, "inference")
    assert receipt(stack).exists()


def test_a_missing_source_is_an_error_with_a_next_step(
    new_appliance: Callable[..., Appliance], tmp_path: Path
) -> None:
    stack = new_appliance(source_dir=str(tmp_path / "unplugged"))
    refused = stack.run("up")
    assert refused.returncode == 5, refused.stderr
    assert str(tmp_path / "unplugged") in refused.stderr
    assert "next: plug the disk in" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert stack.container("weights") is None


@pytest.mark.long
def test_a_source_unplugged_after_the_proof_is_not_missed(
    new_appliance: Callable[..., Appliance], tmp_path: Path
) -> None:
    source = a_source(tmp_path / "source")
    stack = new_appliance(source_dir=str(source))
    up_until(stack, "gateway")
    down = stack.run("down")
    assert down.returncode == 0, down.stderr
    shutil.rmtree(source)

    again = stack.up()

    assert "weights: every byte proven\n" in again.stderr
    assert stack.ask().json()["choices"][0]["message"]["content"] == PARIS


def take_the_receipt_away(stack: Appliance) -> None:
    receipt(stack).unlink()


def touch_a_shard(stack: Appliance) -> None:
    os.utime(revision_folder(stack) / SHARD.path)


def change_a_shard(stack: Appliance) -> None:
    flip_a_byte(revision_folder(stack) / SHARD.path)


@pytest.mark.parametrize(
    "spoil",
    [
        take_the_receipt_away,
        pytest.param(touch_a_shard, marks=pytest.mark.long),
        pytest.param(change_a_shard, marks=pytest.mark.long),
    ],
)
def test_the_engine_itself_refuses_weights_that_are_no_longer_proven(
    new_appliance: Callable[..., Appliance], spoil: Callable[[Appliance], None]
) -> None:
    stack = new_appliance()
    up_until(stack, "gateway")
    stack.compose("rm", "--stop", "--force", "inference")
    spoil(stack)

    by_hand = stack.compose("up", "--no-deps", "--detach", "inference")

    assert by_hand.returncode == 0, by_hand.stderr
    eventually(lambda: refused_once_more(stack), "the engine refuses again and again")
    said = stack.logs("inference")
    assert str(receipt(stack).parent.name) in said
    assert "serving" not in said

    up_until(stack, "webui")
    assert stack.ask().json()["choices"][0]["message"]["content"] == PARIS

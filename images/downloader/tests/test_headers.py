"""Right bytes of a wrong set of files: the last look before the receipt."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from downloader.errors import VerificationFailed
from wire import Lock, discrepancies, read_receipt, stat_files

TINYSEEK = Path(__file__).parents[3] / "tests" / "fixtures" / "tinyseek"
SHARDS = sorted((TINYSEEK / "Q4_K_M").iterdir())

Run = Callable[..., None]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "Q4_K_M").mkdir(parents=True)
    for shard in SHARDS:
        shutil.copy(shard, folder / "Q4_K_M")
    shutil.copy(TINYSEEK / "hf" / "tokenizer.json", folder)
    return folder


def refused(run: Run, lock: Lock, model: Path, weights_dir: Path) -> str:
    with pytest.raises(VerificationFailed, match="no model that could run") as refusal:
        run(lock, source_dir=model)
    assert read_receipt(weights_dir / lock.folder) is None
    assert refusal.value.exit_code == 6
    return "\n".join(refusal.value.why)


def test_a_whole_model_with_its_tokenizer_is_proven(
    run: Run, lock_of: Callable[[Path], Lock], model: Path, weights_dir: Path
) -> None:
    lock = lock_of(model)

    run(lock, source_dir=model)

    folder = weights_dir / lock.folder
    assert not list(discrepancies(lock, read_receipt(folder), stat_files(folder, lock)))


def test_a_shard_that_the_lock_forgot_is_named(
    run: Run, lock_of: Callable[[Path], Lock], model: Path, weights_dir: Path
) -> None:
    (model / "Q4_K_M" / SHARDS[2].name).unlink()

    assert f"{SHARDS[2].name} is missing" in refused(run, lock_of(model), model, weights_dir)


def test_a_page_of_html_that_was_locked_as_a_model_is_no_model(
    run: Run, lock_of: Callable[[Path], Lock], model: Path, weights_dir: Path
) -> None:
    (model / "Q4_K_M" / SHARDS[0].name).write_text("<html>Please log in</html>")

    why = refused(run, lock_of(model), model, weights_dir)

    assert f"Q4_K_M/{SHARDS[0].name}: it starts with b'<htm'" in why


def test_a_tokenizer_of_another_model_is_told_by_the_tokens_that_differ(
    run: Run, lock_of: Callable[[Path], Lock], model: Path, weights_dir: Path
) -> None:
    (model / "tokenizer.json").write_text('{"model": {"vocab": {"zzz": 0}}}')

    assert "tokenizer.json: token 0 is " in refused(run, lock_of(model), model, weights_dir)

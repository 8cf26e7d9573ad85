"""What the weights folder holds, and what may be removed from it."""

from pathlib import Path

import pytest

from orchestrator.adapters import shelf
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.shelf import Revision, as_row, complete_profiles, find, refuse_removal
from wire import Lock, LockedFile, ProvenFile, Receipt

FOLDER = f"o--r/{'a' * 12}"


def a_lock(*paths: str) -> Lock:
    files = tuple(LockedFile(path=path, size_bytes=3, sha256="0" * 64) for path in paths)
    return Lock(repo="o/r", revision="a" * 40, files=files)


LOCKS = {"q4": a_lock("Q4/m.gguf"), "q5": a_lock("Q5/m.gguf")}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Q4 proven, Q5 on its way; and a folder that is none of ours."""
    for path in ("Q4/m.gguf", "Q5/m.gguf.part"):
        (tmp_path / FOLDER / path).parent.mkdir(parents=True)
        (tmp_path / FOLDER / path).write_bytes(b"abc")
    (tmp_path / "lost+found").mkdir()
    found = (tmp_path / FOLDER / "Q4/m.gguf").stat()
    proven = ProvenFile(
        path="Q4/m.gguf",
        size_bytes=3,
        sha256="0" * 64,
        mtime_ns=found.st_mtime_ns,
        inode=found.st_ino,
    )
    receipt = Receipt(repo="o/r", revision="a" * 40, files=(proven,))
    (tmp_path / FOLDER / "receipt.json").write_text(receipt.model_dump_json())
    return tmp_path


def the_revision(weights: Path) -> Revision:
    (revision,) = shelf.read_revisions(weights)
    return revision


def test_a_revision_is_listed_with_what_is_proven_and_whom_it_is_for(weights: Path) -> None:
    folder, _, state, used_by = as_row(the_revision(weights), LOCKS)
    assert folder == FOLDER
    assert state.startswith("1 files proven, ")
    assert state.endswith(" unfinished")
    assert used_by == "q4, q5 (incomplete)"
    assert complete_profiles(the_revision(weights), LOCKS) == ("q4",)


def test_a_file_that_was_changed_no_longer_counts_as_proven(weights: Path) -> None:
    (weights / FOLDER / "Q4/m.gguf").write_bytes(b"xyz.")
    assert "0 of 1 files proven" in as_row(the_revision(weights), LOCKS)[2]
    assert complete_profiles(the_revision(weights), LOCKS) == ()


def test_a_revision_that_no_lock_names_says_so(weights: Path) -> None:
    assert "no profile" in as_row(the_revision(weights), {})[3]


def test_removing_asks_for_a_yes_and_refuses_what_is_in_use(weights: Path) -> None:
    revision = the_revision(weights)
    with pytest.raises(BadConfiguration) as refusal:
        refuse_removal(revision, agreed=False)
    assert refusal.value.next_step.endswith(f"remove {FOLDER} --yes")
    refuse_removal(revision, agreed=True)
    used = Revision(
        folder=FOLDER, disk_bytes=1, part_bytes=0, receipt=None, stats={}, users=("inference",)
    )
    with pytest.raises(BadConfiguration, match="in use"):
        refuse_removal(used, agreed=True)


def test_a_removed_revision_is_gone_with_its_empty_parent(weights: Path) -> None:
    shelf.remove(the_revision(weights), weights)
    assert [path.name for path in weights.iterdir()] == ["lost+found"]


def test_a_beginning_of_a_name_is_enough_where_it_is_the_only_one(weights: Path) -> None:
    there = shelf.read_revisions(weights)
    assert find("o--r", there).folder == FOLDER
    with pytest.raises(BadConfiguration, match="is no revision here"):
        find("x", there)
    other = weights / "o--r" / ("b" * 12)
    other.mkdir()
    with pytest.raises(BadConfiguration, match="more than one"):
        find("o--r", shelf.read_revisions(weights))
    assert find(FOLDER, shelf.read_revisions(weights)).folder == FOLDER

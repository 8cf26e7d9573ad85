"""What a lock may say, and when a receipt proves it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from wire import Discrepancy, FileStat, Lock, LockedFile, ProvenFile, Receipt, discrepancies

# FIPS 180-2, appendix B: SHA-256 of "abc" and of the two-block message.
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
TWO_BLOCKS = "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
REVISION = "0123456789abcdef0123456789abcdef01234567"


def a_lock(*files: LockedFile, repo: str = "owner/model", revision: str = REVISION) -> Lock:
    return Lock(repo=repo, revision=revision, files=files)


def a_file(path: str = "Q4/one.gguf", size_bytes: int = 3, sha256: str = ABC) -> LockedFile:
    return LockedFile(path=path, size_bytes=size_bytes, sha256=sha256)


def proof_of(file: LockedFile, *, mtime_ns: int = 5, inode: int = 6) -> ProvenFile:
    return ProvenFile(**file.model_dump(), mtime_ns=mtime_ns, inode=inode)


def a_receipt(lock: Lock) -> Receipt:
    files = tuple(proof_of(file) for file in lock.files)
    return Receipt(repo=lock.repo, revision=lock.revision, files=files)


def disk_of(receipt: Receipt) -> dict[str, FileStat | None]:
    return {file.path: file.stat for file in receipt.files}


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "/etc/passwd",
        "../up",
        "a/../b",
        "a/..",
        "./a",
        "a//b",
        "a/",
        "a\x00b",
        "a\nb",
        "a\x1b[2Jb",
    ],
)
def test_a_path_that_is_not_plain_and_relative_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="plain relative path"):
        a_file(path)


@pytest.mark.parametrize("path", ["a", "a/b.gguf", "..a", "a b", ".hidden/权重.gguf"])
def test_a_plain_relative_path_is_accepted(path: str) -> None:
    assert a_file(path).path == path


@pytest.mark.parametrize("sha256", [ABC.upper(), ABC[:-1], f"{ABC}0", f"{ABC}\n", "g" * 64, ""])
def test_a_hash_is_64_lower_case_hexadecimal_digits(sha256: str) -> None:
    with pytest.raises(ValidationError):
        a_file(sha256=sha256)


@pytest.mark.parametrize("repo", ["model", "a/b/c", "../b", "a/..", "/b", "a/", "a/b\n", "a/b c"])
def test_a_repo_is_an_owner_and_a_name_that_are_safe_as_a_folder(repo: str) -> None:
    with pytest.raises(ValidationError):
        a_lock(a_file(), repo=repo)


@pytest.mark.parametrize("revision", ["main", REVISION[:12], REVISION.upper(), f"{REVISION}\n"])
def test_a_revision_is_a_whole_commit(revision: str) -> None:
    with pytest.raises(ValidationError):
        a_lock(a_file(), revision=revision)


def test_a_lock_without_files_is_refused() -> None:
    with pytest.raises(ValidationError):
        a_lock()


def test_a_lock_that_names_a_file_twice_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match=r"named more than once: Q4/one\.gguf"):
        a_lock(a_file(), a_file("other"), a_file(sha256=TWO_BLOCKS))


def test_an_unknown_key_is_refused() -> None:
    text = a_lock(a_file()).model_dump_json().replace('"files"', '"note": 1, "files"')

    with pytest.raises(ValidationError, match="note"):
        Lock.model_validate_json(text)


def test_the_folder_is_named_by_owner_name_and_twelve_digits() -> None:
    assert a_lock(a_file()).folder == "owner--model/0123456789ab"


def test_the_total_is_the_sum_of_the_sizes() -> None:
    assert a_lock(a_file("a", 3), a_file("b", 4)).total_bytes == 7


def test_an_exact_receipt_over_unchanged_files_proves_the_lock() -> None:
    lock = a_lock(a_file("a"), a_file("b"))
    receipt = a_receipt(lock)

    assert list(discrepancies(lock, receipt, disk_of(receipt))) == []


def test_without_a_receipt_nothing_is_proven_and_one_reason_is_enough() -> None:
    lock = a_lock(a_file("a"), a_file("b"))

    assert list(discrepancies(lock, None, disk_of(a_receipt(lock)))) == [
        Discrepancy(None, "there is no readable receipt")
    ]


@pytest.mark.parametrize("other", [{"repo": "owner/other"}, {"revision": "f" * 40}])
def test_a_receipt_of_another_model_or_revision_proves_nothing(other: dict[str, str]) -> None:
    lock = a_lock(a_file())
    receipt = a_receipt(lock).model_copy(update=other)

    (found,) = discrepancies(lock, receipt, disk_of(receipt))

    assert found.path is None
    assert found.why.startswith("the receipt is for")


@pytest.mark.parametrize(
    "seen",
    [
        FileStat(size_bytes=4, mtime_ns=5, inode=6),
        FileStat(size_bytes=3, mtime_ns=4, inode=6),
        FileStat(size_bytes=3, mtime_ns=5, inode=7),
    ],
)
def test_a_change_of_size_time_or_inode_ends_the_proof(seen: FileStat) -> None:
    lock = a_lock(a_file())

    (found,) = discrepancies(lock, a_receipt(lock), {"Q4/one.gguf": seen})

    assert str(found).startswith("Q4/one.gguf: the file was changed after it was proven")


def test_a_missing_file_is_named() -> None:
    lock = a_lock(a_file("a"), a_file("b"))
    receipt = a_receipt(lock)

    found = list(discrepancies(lock, receipt, disk_of(receipt) | {"b": None}))

    assert found == [Discrepancy("b", "the file is missing")]


def test_a_file_that_the_receipt_does_not_name_is_not_proven() -> None:
    lock = a_lock(a_file("a"), a_file("b"))
    receipt = a_receipt(a_lock(a_file("a")))
    disk = disk_of(a_receipt(lock))

    assert [found.path for found in discrepancies(lock, receipt, disk)] == ["b"]


def test_a_proof_of_other_content_is_refused_with_both_hashes() -> None:
    old, new = a_lock(a_file()), a_lock(a_file(sha256=TWO_BLOCKS))
    receipt = a_receipt(old)

    (found,) = discrepancies(new, receipt, disk_of(receipt))

    assert ABC in found.why
    assert TWO_BLOCKS in found.why


def test_a_receipt_may_prove_more_than_the_lock_asks_for() -> None:
    receipt = a_receipt(a_lock(a_file("a"), a_file("b")))

    assert list(discrepancies(a_lock(a_file("a")), receipt, disk_of(receipt))) == []


two_of_each = st.tuples(
    st.sampled_from([3, 4]),
    st.sampled_from([ABC, TWO_BLOCKS]),
    st.integers(0, 1),
    st.integers(0, 1),
)


@given(two_of_each, two_of_each, two_of_each)
def test_a_file_is_proven_only_if_lock_receipt_and_disk_agree_in_everything(
    asked: tuple[int, str, int, int],
    proven: tuple[int, str, int, int],
    seen: tuple[int, str, int, int],
) -> None:
    lock = a_lock(a_file(size_bytes=asked[0], sha256=asked[1]))
    proof = proof_of(
        a_file(size_bytes=proven[0], sha256=proven[1]), mtime_ns=proven[2], inode=proven[3]
    )
    receipt = Receipt(repo=lock.repo, revision=lock.revision, files=(proof,))
    disk: dict[str, FileStat | None] = {"Q4/one.gguf": FileStat(seen[0], seen[2], seen[3])}

    agree = asked[:2] == proven[:2] and (proven[0], *proven[2:]) == (seen[0], *seen[2:])

    assert (not list(discrepancies(lock, receipt, disk))) == agree

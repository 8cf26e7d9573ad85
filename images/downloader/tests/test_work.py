"""The decision what to keep, check and fetch, on any lock, receipt and disk."""

from hypothesis import given
from hypothesis import strategies as st

from downloader.work import receipt_for, work_for
from wire import FileStat, Lock, LockedFile, ProvenFile, Receipt, discrepancies

REPO, REVISION = "owner/model", "0" * 40

paths = st.sampled_from(["a", "b", "c", "d"])
sizes = st.integers(0, 2)
hashes = st.sampled_from(["0" * 64, "1" * 64])
stats = st.builds(FileStat, size_bytes=sizes, mtime_ns=st.integers(0, 1), inode=st.integers(1, 2))
locked: st.SearchStrategy[LockedFile] = st.builds(
    LockedFile, path=paths, size_bytes=sizes, sha256=hashes
)
proven: st.SearchStrategy[ProvenFile] = st.builds(
    ProvenFile,
    path=paths,
    size_bytes=sizes,
    sha256=hashes,
    mtime_ns=st.integers(0, 1),
    inode=st.integers(1, 2),
)
locks = st.builds(
    Lock,
    repo=st.just(REPO),
    revision=st.just(REVISION),
    files=st.lists(locked, min_size=1, unique_by=lambda file: file.path).map(tuple),
)
receipts = st.none() | st.builds(
    Receipt,
    repo=st.sampled_from([REPO, "another/model"]),
    revision=st.just(REVISION),
    files=st.lists(proven, unique_by=lambda file: file.path).map(tuple),
)
disks = st.dictionaries(paths, st.none() | stats)


@given(locks, receipts, disks)
def test_every_locked_file_is_kept_checked_or_fetched_and_only_once(
    lock: Lock, receipt: Receipt | None, disk: dict[str, FileStat | None]
) -> None:
    work = work_for(lock, receipt, disk)

    kept = [proof.path for proof in work.kept]
    others = [file.path for file in (*work.to_check, *work.to_fetch)]
    assert sorted([*kept, *others]) == sorted(file.path for file in lock.files)


@given(locks, receipts, disks)
def test_kept_is_exactly_what_has_no_discrepancy(
    lock: Lock, receipt: Receipt | None, disk: dict[str, FileStat | None]
) -> None:
    work = work_for(lock, receipt, disk)

    for file in lock.files:
        alone = Lock(repo=lock.repo, revision=lock.revision, files=(file,))
        kept = file.path in {proof.path for proof in work.kept}
        assert kept == (not list(discrepancies(alone, receipt, disk)))


@given(locks, receipts, disks)
def test_only_a_file_of_the_right_size_is_worth_hashing(
    lock: Lock, receipt: Receipt | None, disk: dict[str, FileStat | None]
) -> None:
    work = work_for(lock, receipt, disk)

    for file in work.to_check:
        seen = disk[file.path]
        assert seen is not None
        assert seen.size_bytes == file.size_bytes
    for file in work.to_fetch:
        seen = disk.get(file.path)
        assert seen is None or seen.size_bytes != file.size_bytes


@given(locks, receipts, disks)
def test_a_new_receipt_proves_its_lock_and_takes_no_proof_from_another_file(
    lock: Lock, older: Receipt | None, disk: dict[str, FileStat | None]
) -> None:
    now_proven = tuple(
        ProvenFile(
            path=file.path, size_bytes=file.size_bytes, sha256=file.sha256, mtime_ns=1, inode=1
        )
        for file in lock.files
    )
    disk |= {file.path: file.stat for file in now_proven}

    receipt = receipt_for(lock, now_proven, older, disk)

    assert not list(discrepancies(lock, receipt, disk))
    assert all(disk.get(file.path) == file.stat for file in receipt.files)
    assert len({file.path for file in receipt.files}) == len(receipt.files)
    if older is not None and older.repo == lock.repo:
        ours = {file.path for file in now_proven}
        still = {
            file
            for file in older.files
            if file.path not in ours and disk.get(file.path) == file.stat
        }
        assert still <= set(receipt.files)

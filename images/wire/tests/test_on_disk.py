"""Reading a revision's folder as it is."""

import os
from pathlib import Path

import pytest

from wire import FileStat, Lock, LockedFile, ProvenFile, Receipt, read_receipt, stat_files

# FIPS 180-2, appendix B.1: SHA-256 of "abc".
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def a_lock(*paths: str) -> Lock:
    files = tuple(LockedFile(path=path, size_bytes=3, sha256=ABC) for path in paths)
    return Lock(repo="owner/model", revision="0" * 40, files=files)


def test_a_receipt_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    proof = ProvenFile(
        path="a", size_bytes=3, sha256=ABC, mtime_ns=1_700_000_000_123_456_789, inode=2**63
    )
    receipt = Receipt(repo="owner/model", revision="0" * 40, files=(proof,))
    (tmp_path / "receipt.json").write_text(receipt.model_dump_json())

    assert read_receipt(tmp_path) == receipt


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"not json", b"\xff\xfe", b'{"repo": "owner/model"', b"[" * 100_000]
)
def test_a_receipt_that_can_not_be_read_as_one_proves_nothing(
    content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "receipt.json").write_bytes(content)

    assert read_receipt(tmp_path) is None


def test_no_receipt_is_none(tmp_path: Path) -> None:
    assert read_receipt(tmp_path) is None


def test_files_are_seen_with_size_time_and_inode_and_missing_ones_as_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    os.utime(tmp_path / "a", ns=(0, 1_700_000_000_123_456_789))

    seen = stat_files(tmp_path, a_lock("a", "b", "a/below"))

    inode = (tmp_path / "a").stat().st_ino
    assert seen == {"a": FileStat(3, 1_700_000_000_123_456_789, inode), "b": None, "a/below": None}


def test_a_link_counts_as_the_file_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"abc")
    (tmp_path / "a").symlink_to("real")
    (tmp_path / "b").symlink_to("nowhere")

    seen = stat_files(tmp_path, a_lock("a", "b"))

    assert seen["a"] is not None
    assert seen["a"].inode == (tmp_path / "real").stat().st_ino
    assert seen["b"] is None

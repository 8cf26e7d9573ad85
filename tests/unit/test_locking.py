"""From listings to a lock: which files, gaps, and hubs that disagree."""

import json
from dataclasses import replace

import pytest

from orchestrator.core.errors import BadConfiguration, FetchFailed, VerificationFailed
from orchestrator.core.locking import (
    Listing,
    Published,
    choose,
    content_revision,
    describe,
    disagreements,
    has_a_commit,
    lock_diff,
    make_lock,
    missing_shards,
    refuse_disagreement,
)
from wire import Lock, LockedFile
from wire.order import HttpFolder, HuggingFace, WheelMember

COMMIT = "a" * 40


def a_listing(*paths: str, source: str = "huggingface (hub)", commit: str = COMMIT) -> Listing:
    files = tuple(
        Published(path=path, size_bytes=n, sha256=f"{n:064x}") for n, path in enumerate(paths, 1)
    )
    return Listing(source=source, repo="o/r", commit=commit, files=files)


def shards(*numbers: int, count: int = 9) -> list[str]:
    return [f"Q4/R1-Q4-{number:05d}-of-{count:05d}.gguf" for number in numbers]


def chosen(listing: Listing, *patterns: str) -> list[str]:
    return [file.path for file in choose(listing, patterns).files]


def test_patterns_choose_as_hugging_faces_own_do() -> None:
    listing = a_listing("Q4/a.gguf", "Q4/sub/b.gguf", "Q5/a.gguf", "config.json")
    assert chosen(listing, "Q4/*") == ["Q4/a.gguf", "Q4/sub/b.gguf"]
    assert chosen(listing, "Q5/", "*.json") == ["Q5/a.gguf", "config.json"]


def test_a_pattern_that_matches_nothing_is_an_error_that_names_near_matches() -> None:
    listing = a_listing("Q4_K_M/a.gguf", "Q5_K_M/a.gguf")
    with pytest.raises(BadConfiguration) as refusal:
        choose(listing, ["Q4_K_M/*", "Q4_KM/*"])
    assert "'Q4_KM/*'" in refusal.value.what
    assert "Q4_K_M/" in refusal.value.why


def test_a_missing_shard_is_named_by_its_number() -> None:
    with pytest.raises(FetchFailed) as refusal:
        choose(a_listing(*shards(1, 2, 3, 5, 6, 7, 8)), ["Q4/*"])
    assert "Q4/R1-Q4-NNNNN-of-00009.gguf: 00004, 00009" in refusal.value.why


def test_a_pattern_that_leaves_shards_out_is_found_too() -> None:
    with pytest.raises(FetchFailed, match="lacks shards"):
        choose(a_listing(*shards(*range(1, 10))), ["*-0000[1-8]-of-*"])


def test_whole_split_files_have_no_gaps() -> None:
    assert not list(missing_shards([*shards(*range(1, 10)), "Q4/one.gguf"]))
    assert not list(missing_shards(shards(1, 2, count=2) + shards(1, 2, 3, count=3)))


def test_a_shard_beyond_the_count_is_an_error() -> None:
    assert list(missing_shards(shards(1, 2, 3, count=2))) == ["Q4/R1-Q4-NNNNN-of-00002.gguf: 00003"]


def test_a_lock_says_who_published_it_and_when() -> None:
    lock = make_lock(a_listing("b.gguf", "a.gguf"), at="2026-11-30", published_by=["x", "y"])
    assert (lock.repo, lock.revision) == ("o/r", COMMIT)
    assert [file.path for file in lock.files] == ["a.gguf", "b.gguf"]
    assert (lock.locked_at, lock.locked_from) == ("2026-11-30", "x, y")
    assert has_a_commit(lock)


def test_a_lock_of_before_is_read_and_written_as_it_was() -> None:
    text = {"repo": "o/r", "revision": COMMIT, "files": [{"path": "a", "size_bytes": 1}]}
    text["files"][0]["sha256"] = "0" * 64  # type: ignore[index]
    lock = Lock.model_validate(text)
    assert json.loads(lock.model_dump_json(exclude_none=True)) == text


def test_files_without_a_commit_get_a_revision_of_their_content() -> None:
    lock = make_lock(a_listing("a", "b", commit=""), at="", published_by=[])
    # sha256sum's own lines: printf '%064x  a\n%064x  b\n' 1 2 | sha256sum | cut -c 1-40
    assert lock.revision == "5a1703fb020169dace0d044820a46dbe314349c0"
    assert not has_a_commit(lock)
    assert content_revision(reversed(lock.files)) == lock.revision


def test_no_lock_is_made_of_a_hash_that_nobody_published() -> None:
    listing = a_listing("a.gguf")
    bare = replace(listing, files=(Published(path="a.gguf", size_bytes=1),))
    with pytest.raises(FetchFailed, match=r"no sha256 and size of a\.gguf"):
        make_lock(bare, at="", published_by=[])


def test_two_hubs_that_disagree_are_an_error_with_the_file_and_both_hashes() -> None:
    first = a_listing("a", "b")
    second = replace(a_listing("a", "b", source="modelscope (other)"), commit="")
    refuse_disagreement(first, second)
    wrong = replace(second, files=(second.files[0], replace(second.files[1], sha256="f" * 64)))
    with pytest.raises(VerificationFailed) as refusal:
        refuse_disagreement(first, wrong)
    for said in ("b: sha256", f"{2:064x}", "f" * 64, "huggingface (hub)", "modelscope (other)"):
        assert said in refusal.value.why
    assert "a: " not in refusal.value.why


def test_sizes_and_absent_files_count_and_what_is_not_told_does_not() -> None:
    first = a_listing("a", "b", "c")
    other = replace(
        first,
        files=(replace(first.files[0], size_bytes=7), replace(first.files[1], sha256=None)),
    )
    assert list(disagreements(first.files, other)) == ["a: 1 bytes, or 7 bytes", "c: not there"]


def test_a_locks_diff_shows_what_goes_what_comes_and_the_revision() -> None:
    old = make_lock(a_listing("a", "b"), at="1", published_by=[])
    new = make_lock(a_listing("a", "x", "c", commit="b" * 40), at="2", published_by=[])
    kept = LockedFile(path="a", size_bytes=1, sha256=f"{1:064x}")
    assert kept in old.files
    assert lock_diff(old, new) == (
        f"  o/r@{'a' * 12} -> o/r@{'b' * 12}\n"
        f"- b  2 bytes  sha256 {2:064x}\n"
        f"+ c  3 bytes  sha256 {3:064x}\n"
        f"+ x  2 bytes  sha256 {2:064x}\n"
    )
    assert lock_diff(old, old.model_copy(update={"locked_at": "3"})) == ""


def test_a_source_is_described_without_the_password_in_its_url() -> None:
    wheel = WheelMember(url="https://u:secret@index/p/w-1.whl", sha256="0" * 64, member="m")
    hub = HuggingFace(endpoint="https://u:secret@hub", repo="o/r", revision="main")
    described = [describe(wheel), describe(hub), describe(HttpFolder(url="http://h:1/a"))]
    assert described == ["the wheel w-1.whl", "huggingface (hub)", "h:1/a"]

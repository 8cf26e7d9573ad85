"""The hub adapter against a hub over HTTP: listings, small files, refusals and silence."""

import hashlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from hub import Hub, Replace, Status, a_wheel
from orchestrator.adapters.hub import Hubs
from orchestrator.core.locking import Listing, Published, SourceUnavailable
from wire.order import Folder, HuggingFace, ModelScope, Source

REPO = "owner/name"
CONFIG = b'{"a": 1}\n'
SHARD = bytes(range(256)) * 64


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = tmp_path / REPO
    (folder / "Q4").mkdir(parents=True)
    (folder / "config.json").write_bytes(CONFIG)
    for number in range(1, 6):
        (folder / "Q4" / f"a-{number:05d}-of-00005.gguf").write_bytes(SHARD + bytes([number]))
    a_wheel(tmp_path / "_index" / "some-model", "some-model", "1.2", {"some_model/m.gguf": SHARD})
    with Hub(tmp_path, page=2, gated=("owner/gated",), tokens={"hf_good": ("owner/gated",)}) as hub:
        yield hub


def listing_of(source: Source, token: str = "") -> Listing | None:
    with closing(asking(token)) as hubs:
        return hubs.listing(source)


def completed(source: Source, listing: Listing, file: Published, token: str = "") -> Published:
    with closing(asking(token)) as hubs:
        return hubs.completed(source, listing, file)


def asking(token: str = "") -> Hubs:
    return Hubs(ca_bundle=None, token=token, token_file=Path("secrets/hf_token"))


def listed(source: Source, token: str = "") -> Listing:
    listing = listing_of(source, token)
    assert listing is not None
    return listing


def by_path(listing: Listing) -> dict[str, Published]:
    return {file.path: file for file in listing.files}


def test_a_branch_is_resolved_to_a_commit_and_every_page_of_files_is_read(hub: Hub) -> None:
    source = HuggingFace(endpoint=hub.url, repo=REPO, revision="main")
    listing = listed(source)
    assert listing.commit == hub.commit(REPO)
    assert len(listing.files) == 6
    shard = by_path(listing)["Q4/a-00003-of-00005.gguf"]
    assert shard.size_bytes == len(SHARD) + 1
    assert shard.sha256 == hashlib.sha256(SHARD + b"\3").hexdigest()


def test_a_small_files_sha256_is_computed_from_bytes_that_match_gits_hash(hub: Hub) -> None:
    source = HuggingFace(endpoint=hub.url, repo=REPO, revision="main")
    listing = listed(source)
    config = by_path(listing)["config.json"]
    assert config.sha256 is None
    assert completed(source, listing, config).sha256 == hashlib.sha256(CONFIG).hexdigest()


def test_a_small_file_that_is_not_what_its_listing_says_is_refused(hub: Hub) -> None:
    source = HuggingFace(endpoint=hub.url, repo=REPO, revision="main")
    listing = listed(source)
    hub.arm(Replace(repo=REPO, path="config.json", content=CONFIG[::-1]))
    with pytest.raises(SourceUnavailable, match=r"config\.json is not what its listing says"):
        completed(source, listing, by_path(listing)["config.json"])


def test_modelscope_lists_every_hash(hub: Hub) -> None:
    listing = listed(ModelScope(endpoint=hub.url, repo=REPO, revision="master"))
    files = by_path(listing)
    assert files["config.json"].sha256 == hashlib.sha256(CONFIG).hexdigest()
    assert files["config.json"].size_bytes == len(CONFIG)
    assert len(files) == 6


def test_a_web_folder_vouches_for_itself_with_a_sums_file_alone(hub: Hub, tmp_path: Path) -> None:
    assert listing_of(hub.folder(REPO)) is None
    sums = f"{hashlib.sha256(CONFIG).hexdigest()}  ./config.json\n"
    (tmp_path / "owner" / "sums").mkdir()
    (tmp_path / "owner" / "sums" / "SHA256SUMS").write_text(sums)
    (tmp_path / "owner" / "sums" / "config.json").write_bytes(CONFIG)
    source = hub.folder("owner/sums")
    listing = listed(source)
    (file,) = listing.files
    assert listing.repo == "http/sums"
    assert completed(source, listing, file) == Published(
        path="config.json", size_bytes=len(CONFIG), sha256=hashlib.sha256(CONFIG).hexdigest()
    )


def test_a_wheels_member_is_found_by_ranges_with_the_hash_that_its_record_gives(hub: Hub) -> None:
    listing = listed(hub.wheel("some-model", "some_model/m.gguf"))
    (file,) = listing.files
    assert listing.repo == "wheel/some-model"
    assert file == Published(
        path="m.gguf", size_bytes=len(SHARD), sha256=hashlib.sha256(SHARD).hexdigest()
    )


def test_a_member_that_the_wheel_lacks_is_refused(hub: Hub) -> None:
    source = hub.wheel("some-model", "some_model/m.gguf")
    with pytest.raises(SourceUnavailable, match=r"some_model/x\.gguf") as refusal:
        listing_of(source.model_copy(update={"member": "some_model/x.gguf"}))
    assert refusal.value.lasting


def test_a_mounted_folder_is_not_asked() -> None:
    assert listing_of(Folder()) is None


@pytest.mark.parametrize("token", ["", "hf_bad"])
def test_a_gated_repository_says_what_to_do(tmp_path: Path, hub: Hub, token: str) -> None:
    (tmp_path / "owner" / "gated").mkdir()
    (tmp_path / "owner" / "gated" / "config.json").write_bytes(CONFIG)
    source = HuggingFace(endpoint=hub.url, repo="owner/gated", revision="main")
    listing = Listing(source="", repo="", commit=hub.commit("owner/gated"), files=())
    config = Published(path="config.json", size_bytes=len(CONFIG), git_sha1="0" * 40)
    with pytest.raises(SourceUnavailable, match=r"40[13]") as refusal:
        completed(source, listing, config, token)
    assert refusal.value.lasting
    assert "secrets/hf_token" in refusal.value.next_step
    assert "licence" in refusal.value.next_step


def test_a_token_opens_a_gated_repository_and_stays_with_the_hub(tmp_path: Path, hub: Hub) -> None:
    (tmp_path / "owner" / "gated").mkdir()
    (tmp_path / "owner" / "gated" / "config.json").write_bytes(CONFIG)
    source = HuggingFace(endpoint=hub.url, repo="owner/gated", revision="main")
    listing = listed(source, "hf_good")
    config = completed(source, listing, listing.files[0], "hf_good")
    assert config.sha256 == hashlib.sha256(CONFIG).hexdigest()
    assert not [seen for seen in hub.seen if seen.door == "cdn" and seen.authorized]


@pytest.mark.parametrize(
    "source",
    [
        HuggingFace(endpoint="{}", repo="no/such", revision="main"),
        HuggingFace(endpoint="{}", repo=REPO, revision="f" * 40),
        ModelScope(endpoint="{}", repo="no/such", revision="master"),
    ],
)
def test_what_is_not_there_is_lasting(hub: Hub, source: HuggingFace | ModelScope) -> None:
    with pytest.raises(SourceUnavailable) as refusal:
        listing_of(source.model_copy(update={"endpoint": hub.url}))
    assert refusal.value.lasting


def test_a_busy_hub_names_the_pause_it_wants(hub: Hub) -> None:
    hub.arm(Status(code=429, retry_after="3", on="metadata"), Status(code=503, on="metadata"))
    source = HuggingFace(endpoint=hub.url, repo=REPO, revision="main")
    pauses = []
    for _ in range(2):
        with pytest.raises(SourceUnavailable) as refusal:
            listing_of(source)
        pauses.append(refusal.value.again_after_s)
        assert not refusal.value.lasting
    assert pauses == [3, 2]


def test_a_hub_that_is_down_and_a_name_that_is_unknown_say_so(hub: Hub) -> None:
    hub.close()
    for endpoint in (hub.url, "http://no-such-host.invalid"):
        source = HuggingFace(endpoint=endpoint, repo=REPO, revision="main")
        with pytest.raises(SourceUnavailable, match="can't be reached") as refusal:
            listing_of(source)
        assert not refusal.value.lasting
        assert "HTTPS_PROXY" in refusal.value.next_step


def test_a_page_instead_of_json_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    portal = httpx.MockTransport(lambda request: httpx.Response(200, text="<html>log in"))
    source = ModelScope(endpoint="http://hub", repo=REPO, revision="master")
    with closing(asking()) as hubs, httpx.Client(transport=portal) as client:
        monkeypatch.setattr(hubs, "_http", client)
        with pytest.raises(SourceUnavailable, match="<html>log in"):
            hubs.listing(source)


def test_a_web_folder_that_can_not_be_asked_is_not_one_without_sums(hub: Hub) -> None:
    hub.arm(Status(code=500, times=None))
    with pytest.raises(SourceUnavailable, match="500"):
        listing_of(hub.folder(REPO))

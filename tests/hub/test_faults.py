"""What the hub does wrong on purpose: where, how, and how often."""

import hashlib
import http.client
import json
import socket
import time
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
)
from hub.asking import BIG, BIG_BYTES, REPO, SMALL, get, resolve, signed


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

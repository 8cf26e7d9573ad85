"""Requests that two servers may read in two ways, and clients that never finish one."""

import contextlib
import json
import socket
from collections.abc import Iterator

import pytest

from images.gateway.tests.support import (
    CHAT,
    GATEWAY_KEY,
    Client,
    Gateway,
    chat_body,
    chat_head,
    environment,
    new_id,
    running_gateway,
)
from paced_engine.running import RunningEngine

BODY = chat_body(stream=False, tick_s=0.0)
LENGTH = len(BODY)
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (LENGTH, BODY)


def _request(
    *lines: str, body: bytes = BODY, version: str = "1.1", host: str = "host: g", end: str = "\r\n"
) -> bytes:
    key = f"authorization: Bearer {GATEWAY_KEY}"
    head = [f"POST {CHAT} HTTP/{version}", *filter(None, [host]), key, *lines, "", ""]
    return end.join(head).encode("latin-1") + body


AMBIGUOUS = {
    "length and chunked": _request(
        f"content-length: {LENGTH}", "transfer-encoding: chunked", body=CHUNKED
    ),
    "chunked and length": _request(
        "transfer-encoding: chunked", f"content-length: {LENGTH}", body=CHUNKED
    ),
    "two lengths": _request(f"content-length: {LENGTH}", f"content-length: {LENGTH + 1}"),
    "one length twice": _request(f"content-length: {LENGTH}", f"content-length: {LENGTH}"),
    "a list of lengths": _request(f"content-length: {LENGTH}, {LENGTH}"),
    "a signed length": _request(f"content-length: +{LENGTH}"),
    "a negative length": _request("content-length: -1"),
    "a length in hex": _request(f"content-length: 0x{LENGTH:x}"),
    "a length beyond 64 bits": _request("content-length: 99999999999999999999999"),
    "a space before the colon": _request(f"content-length : {LENGTH}"),
    "a coding with a space before it": _request("transfer-encoding : chunked", body=CHUNKED),
    "an unknown coding": _request("transfer-encoding: xchunked", body=CHUNKED),
    "no coding": _request("transfer-encoding: identity", f"content-length: {LENGTH}"),
    "chunked before another coding": _request("transfer-encoding: chunked, identity", body=CHUNKED),
    "another coding before chunked": _request("transfer-encoding: gzip, chunked", body=CHUNKED),
    "chunked twice": _request(
        "transfer-encoding: chunked", "transfer-encoding: chunked", body=CHUNKED
    ),
    "a vertical tab before chunked": _request("transfer-encoding: \x0bchunked", body=CHUNKED),
    "chunked in a folded line": _request("transfer-encoding:\r\n chunked", body=CHUNKED),
    "chunked in HTTP/1.0": _request("transfer-encoding: chunked", body=CHUNKED, version="1.0"),
    "a version from the future": _request(f"content-length: {LENGTH}", version="2.0"),
    "lines that end with LF": _request(f"content-length: {LENGTH}", end="\n"),
    "a lone CR": _request(f"content-length: {LENGTH}\rx: y"),
    "a folded line": _request(f"content-length: {LENGTH}", "x: a\r\n b"),
    "a NUL": _request(f"content-length: {LENGTH}", "x: a\0b"),
    "no host": _request(f"content-length: {LENGTH}", host=""),
    "two hosts": _request(f"content-length: {LENGTH}", "host: other"),
    "a chunk size in C": _request("transfer-encoding: chunked", body=b"0x" + CHUNKED),
    "a negative chunk": _request("transfer-encoding: chunked", body=b"-" + CHUNKED),
    "a chunk beyond 64 bits": _request("transfer-encoding: chunked", body=b"f" * 17 + CHUNKED),
    "a chunk that ends wrongly": _request(
        "transfer-encoding: chunked", body=b"%x\r\n%sXX0\r\n\r\n" % (LENGTH, BODY)
    ),
    "chunk lines that end with LF": _request(
        "transfer-encoding: chunked", body=CHUNKED.replace(b"\r\n", b"\n")
    ),
    "an upgrade with a body": _request(
        "connection: Upgrade, HTTP2-Settings",
        "upgrade: h2c",
        "http2-settings: AAMAAABkAAQAAP__",
        f"content-length: {LENGTH}",
    ),
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("what", AMBIGUOUS)
def test_what_can_be_read_in_two_ways_is_400_and_the_end_of_the_connection(
    gateway: Gateway, engine: RunningEngine, what: str
) -> None:
    before = len(engine.seen())
    with Client(gateway.port) as client:
        client.send(AMBIGUOUS[what])
        head, _, body = client.read_to_close().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert len(engine.seen()) == before


def test_a_second_request_in_the_first_ones_bytes_is_not_answered(
    gateway: Gateway, engine: RunningEngine
) -> None:
    before = len(engine.seen())
    behind = _request(f"content-length: {LENGTH}")
    with Client(gateway.port) as client:
        client.send(_request(f"content-length: {LENGTH}") + behind)
        answers = client.read_to_close()
    assert answers.count(b"HTTP/1.1 ") == answers.count(b"HTTP/1.1 200 ") == 1
    assert [seen["path"] for seen in engine.seen()[before:]] == [CHAT]


@pytest.mark.parametrize("pieces", [1, 40])
def test_a_header_without_end_is_431(gateway: Gateway, pieces: int) -> None:
    with Client(gateway.port) as client:
        client.send(b"GET /healthz HTTP/1.1\r\nhost: g\r\nx: ")
        for _ in range(pieces):
            client.send(b"y" * (66_000 // pieces))
        client.read_until(b"header_too_large")
    assert client.received.startswith(b"HTTP/1.1 431 ")


def test_many_small_headers_are_one_large_one(gateway: Gateway) -> None:
    with Client(gateway.port) as client:
        client.send(_request(*[f"x-{number}: y" for number in range(10_000)]))
        client.read_until(b"header_too_large")


@pytest.mark.parametrize("key", [GATEWAY_KEY, "wrong"])
@pytest.mark.parametrize("piece", [b"x: y\r\n" * 11_000, b"y" * 66_000])
def test_trailers_without_end_close_the_connection(
    gateway: Gateway, key: str, piece: bytes
) -> None:
    """Whoever sends them: to be refused for a wrong key is no end of the body."""
    head = chat_head(0, new_id(), key=key).replace(
        b"content-length: 0", b"transfer-encoding: chunked"
    )
    with Client(gateway.port) as client:
        client.send(head + CHUNKED.removesuffix(b"\r\n") + b"x: ")
        with pytest.raises(ConnectionError):
            client.send(piece * 300)


def test_short_trailers_are_let_go(gateway: Gateway) -> None:
    body = CHUNKED.removesuffix(b"\r\n") + b"x-checksum: 1\r\n\r\n"
    with Client(gateway.port) as client:
        client.send(_request("transfer-encoding: chunked", body=body))
        client.read_until(b"tick 0")
    assert client.received.startswith(b"HTTP/1.1 200 ")


@pytest.fixture(scope="module")
def hasty(engine: RunningEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    env = environment(
        tmp_path_factory.mktemp("keys"), engine.url, HEADER_TIMEOUT_S="0.5", BODY_TIMEOUT_S="0.5"
    )
    with running_gateway(env) as running:
        yield running


@pytest.mark.parametrize("begun", [b"", b"POST /v1/chat", b"GET /healthz HTTP/1.1\r\nhost: g\r\n"])
def test_a_header_that_does_not_come_closes_the_connection(hasty: Gateway, begun: bytes) -> None:
    with Client(hasty.port) as client:
        client.send(begun)
        assert client.read_to_close() == b""


def test_a_second_header_that_does_not_come_closes_the_connection_too(hasty: Gateway) -> None:
    with Client(hasty.port) as client:
        client.send(b"GET /healthz HTTP/1.1\r\nhost: g\r\n\r\nGET /healthz HTT")
        assert client.read_to_close().endswith(b'{"alive":true}')


def test_a_connection_between_two_requests_may_be_idle_for_longer(hasty: Gateway) -> None:
    with Client(hasty.port) as idle, Client(hasty.port) as clock:
        idle.send(b"GET /healthz HTTP/1.1\r\nhost: g\r\n\r\n")
        idle.read_until(b"alive")
        assert clock.read_to_close() == b""  # twice the deadline is over, at the least
        with Client(hasty.port) as second_clock:
            assert second_clock.read_to_close() == b""
        idle.received = b""
        idle.send(b"GET /healthz HTTP/1.1\r\nhost: g\r\n\r\n")
        idle.read_until(b"alive")


@pytest.mark.parametrize("begun", [b"", b'{"messages": ['])
def test_a_body_that_does_not_come_is_400_and_not_a_408_to_be_sent_again(
    hasty: Gateway, engine: RunningEngine, begun: bytes
) -> None:
    request_id = new_id()
    with Client(hasty.port) as client:
        client.send(chat_head(1000, request_id) + begun)
        head, _, body = client.read_to_close().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    error = json.loads(body)["error"]
    assert error["code"] == "body_timeout"
    assert error["message"] == "The request did not arrive within 0.5 s."
    assert request_id not in {seen["request_id"] for seen in engine.seen()}


def test_the_deadlines_end_with_the_request(hasty: Gateway) -> None:
    answer = hasty.ask("POST", CHAT, chat_body(tick_s=0.5, ticks=4))
    assert answer.body.endswith(b"data: [DONE]\n\n")


def test_a_hundred_slow_clients_do_not_keep_one_quick_one_waiting(hasty: Gateway) -> None:
    slow = [socket.create_connection(("127.0.0.1", hasty.port)) for _ in range(100)]
    for connection in slow:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nx: ")
    assert hasty.ask("POST", CHAT, BODY).status == 200
    for connection in slow:
        connection.settimeout(20)
        assert connection.recv(100) == b""
        connection.close()


def test_an_answer_under_way_is_not_broken_by_nonsense_behind_it(gateway: Gateway) -> None:
    """Nor is what is behind it read: the connection ends with the answer."""
    with gateway.chat(chat_body(tick_s=0.2, ticks=3), new_id()) as client:
        client.read_until(b"tick 0")
        client.send(b"\x00nonsense\r\n\r\n" + b"x" * 2**18)
        with contextlib.suppress(ConnectionError):
            client.read_to_close()
    assert client.received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert b"HTTP/1.1 400" not in client.received

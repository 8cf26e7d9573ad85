"""Who and what is refused, and in which words."""

from collections.abc import Iterator

import pytest

from images.gateway.tests.support import (
    CHAT,
    ENGINE_KEY,
    GATEWAY_KEY,
    Answer,
    Client,
    Gateway,
    chat_body,
    chat_head,
    environment,
    new_id,
    running_gateway,
)
from paced_engine.running import RunningEngine

WRONG = [
    [],
    ["authorization: Bearer wrong"],
    ["authorization: Bearer"],
    ["authorization: Bearer "],
    [f"authorization: Basic {GATEWAY_KEY}"],
    [f"authorization: {GATEWAY_KEY}"],
    [f"authorization: Bearer {GATEWAY_KEY}x"],
    [f"authorization: Bearer {GATEWAY_KEY[:-1]}"],
    [f"authorization: Bearer {GATEWAY_KEY.upper()}"],
    [f"authorization: Bearer {ENGINE_KEY}"],
    ["x-api-key: wrong"],
    ["x-api-key:"],
    [f"x-api-key: Bearer {GATEWAY_KEY}"],
    [f"x-api-key: {GATEWAY_KEY}", "authorization: Bearer wrong"],
    [f"x-api-key: {GATEWAY_KEY}", f"authorization: Basic {GATEWAY_KEY}"],
    [f"x-api-key: {GATEWAY_KEY}", "x-api-key: wrong"],
    [f"authorization: Bearer {GATEWAY_KEY}", "authorization: Bearer wrong"],
    ["authorization: Bearer \xff"],
]


def _is_refusal(answer: Answer, status: int, code: str) -> bool:
    error = answer.json()["error"]
    return (
        answer.status == status
        and answer.headers["content-type"] == "application/json"
        and "x-request-id" in answer.headers
        and set(error) == {"message", "type", "param", "code"}
        and error["code"] == code
    )


@pytest.mark.parametrize("headers", WRONG)
@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/metrics", "/v1/nowhere"])
def test_a_missing_or_wrong_key_is_401_everywhere_else_than_on_the_probes(
    gateway: Gateway, headers: list[str], path: str
) -> None:
    with Client(gateway.port) as client:
        lines = [f"GET {path} HTTP/1.1", "host: g", "connection: close", *headers, "", ""]
        client.send("\r\n".join(lines).encode("latin-1"))
        head, _, body = client.read_to_close().decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 401 ")
    assert "www-authenticate: Bearer\r\n" in head
    assert '"code":"invalid_api_key"' in body


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_right_key_passes_however_the_scheme_is_written(gateway: Gateway, scheme: str) -> None:
    headers = {"authorization": f"{scheme} {GATEWAY_KEY}"}
    assert gateway.ask("GET", "/v1/models", headers=headers, key=None).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": GATEWAY_KEY},
        {"X-API-Key": f" {GATEWAY_KEY} "},
        {"x-api-key": GATEWAY_KEY, "authorization": f"Bearer {GATEWAY_KEY}"},
    ],
)
def test_the_right_key_passes_as_anthropics_clients_send_it(
    gateway: Gateway, headers: dict[str, str]
) -> None:
    assert gateway.ask("GET", "/v1/models", headers=headers, key=None).status == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_the_probes_need_no_key(gateway: Gateway, path: str) -> None:
    assert gateway.ask("GET", path, key=None).status == 200


def test_the_key_is_asked_for_before_the_body(gateway: Gateway, engine: RunningEngine) -> None:
    request_id = new_id()
    with Client(gateway.port) as client:
        client.send(
            f"POST {CHAT} HTTP/1.1\r\nhost: g\r\nx-request-id: {request_id}\r\n"
            "content-length: 100\r\n\r\n".encode()
        )
        client.read_until(b"invalid_api_key")
    assert request_id not in {seen["request_id"] for seen in engine.seen()}


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/",
        "/v1/models/",
        "/v1/models/paced",
        "/v1/completions/",
        "/v1/embeddings",
        "/v1/chat/completions/",
        "/V1/models",
        "//v1/models",
        "/v1/../health",
        "/health",
        "/_seen",
        "/slots",
        "/props",
        "/metrics",
        "/metrics/engine",
        "/docs",
        "/redoc",
        "/v1%2Fmodels/x",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_other_path_reaches_the_engine(
    gateway: Gateway, engine: RunningEngine, method: str, path: str
) -> None:
    before = len(engine.seen())
    answer = gateway.ask(method, path, b"{}" if method == "POST" else None)
    assert _is_refusal(answer, 404, "unknown_url")
    assert len(engine.seen()) == before


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, {"POST"}),
        ("DELETE", CHAT, {"POST"}),
        ("OPTIONS", CHAT, {"POST"}),
        ("POST", "/v1/models", {"GET", "HEAD"}),
        ("POST", "/healthz", {"GET"}),
    ],
)
def test_a_wrong_method_is_405_and_names_the_right_one(
    gateway: Gateway, method: str, path: str, allowed: set[str]
) -> None:
    answer = gateway.ask(method, path)
    assert _is_refusal(answer, 405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == allowed


LIMIT_BYTES = 200


@pytest.fixture(scope="module")
def strict(engine: RunningEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that takes small bodies only."""
    env = environment(tmp_path_factory.mktemp("keys"), engine.url, MAX_BODY_BYTES=str(LIMIT_BYTES))
    with running_gateway(env) as running:
        yield running


def _padded(length: int) -> bytes:
    return chat_body(stream=False, tick_s=0.0).ljust(length)


def test_a_body_of_exactly_the_limit_passes(strict: Gateway) -> None:
    assert strict.ask("POST", CHAT, _padded(LIMIT_BYTES)).status == 200


def test_a_body_announced_too_large_is_413_before_it_is_sent(strict: Gateway) -> None:
    with Client(strict.port) as client:
        client.send(chat_head(LIMIT_BYTES + 1, new_id()))
        client.read_until(b"request_too_large")
        assert client.received.startswith(b"HTTP/1.1 413 ")


def test_a_body_too_large_is_413_to_a_client_that_sends_it_all_the_same(strict: Gateway) -> None:
    answer = strict.ask("POST", CHAT, _padded(5 * 2**20))
    assert _is_refusal(answer, 413, "request_too_large")


def test_a_chunked_body_is_counted_as_it_comes(strict: Gateway, engine: RunningEngine) -> None:
    before = len(engine.seen())
    with Client(strict.port) as client:
        client.send(
            f"POST {CHAT} HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {GATEWAY_KEY}\r\n"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )
        half = b" " * (LIMIT_BYTES // 2 + 1)
        for _ in range(2):
            client.send(b"%x\r\n%s\r\n" % (len(half), half))
        client.read_until(b"request_too_large")
    assert len(engine.seen()) == before

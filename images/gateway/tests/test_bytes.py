"""What passes through: the bytes as they are, few headers, no client secret."""

import base64
import json
from collections.abc import Iterator

import pytest

from images.gateway.tests.pacing import paced_words
from images.gateway.tests.support import (
    CHAT,
    ENGINE_KEY,
    GATEWAY_KEY,
    Answer,
    Client,
    Gateway,
    chat_body,
    new_id,
)
from paced_engine.running import RunningEngine

# Raw UTF-8, an escape that must stay one, odd white space, numbers and fields nobody knows.
ODD_REQUEST = (
    '{ "messages":[{"role":"user","content":"北京 \\u5317 é 🐼"},\r\n'
    '\t{"role":"user","content":PACED,"unknown":{"z":1,"a":1.0,"big":12345678901234567890}}],'
    ' "stream": STREAM, "temperature" : 1.0e0 }  \n'
)
ODD_CHUNKS = [
    b'data: {"choices":[{"delta":{"reasoning_content":"\xe5\x8c',  # a character cut in two
    b'\x97"}}],"usage":null,"logprobs" : 0.10}\r\n\r\n',
    b": ping\n\n",
    b"\n",
    b'data: {"unknown":"\\u5317"}\n\ndata: [DONE]\n\n',
]


def _b64(chunks: list[bytes]) -> list[str]:
    return [base64.b64encode(chunk).decode() for chunk in chunks]


def _with_usage(body: bytes) -> bytes:
    """A request that nothing is added to."""
    stream = b'"stream": true'
    return body.replace(stream, stream + b', "stream_options": {"include_usage": true}')


def _body_seen(engine: RunningEngine, request_id: str) -> bytes:
    return base64.b64decode(engine.wait(request_id, until="ended")["body_b64"])


def test_the_engine_gets_the_request_and_the_client_the_answer_byte_for_byte(
    gateway: Gateway, engine: RunningEngine
) -> None:
    request_id = new_id()
    stream = 'true, "stream_options":{"include_usage": true}'
    paced = json.dumps(paced_words(raw_b64=_b64(ODD_CHUNKS), tick_s=0.02))
    body = ODD_REQUEST.replace("STREAM", stream).replace("PACED", paced).encode()

    answer = gateway.ask("POST", CHAT, body, {"x-request-id": request_id})

    assert (answer.status, answer.body) == (200, b"".join(ODD_CHUNKS))
    assert _body_seen(engine, request_id) == body


def test_a_stream_that_asks_for_no_usage_differs_in_nothing_else(
    gateway: Gateway, engine: RunningEngine
) -> None:
    request_id = new_id()
    usage = (
        b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\r\n\r\n',
        b'data: {"choices": [], "usage": null, "prompt_tokens":1}\n\n',
    )
    sent = [*ODD_CHUNKS[:-1], *usage, ODD_CHUNKS[-1]]
    paced = json.dumps(paced_words(raw_b64=_b64(sent), tick_s=0.02))
    body = ODD_REQUEST.replace("STREAM", "true").replace("PACED", paced).encode()

    answer = gateway.ask("POST", CHAT, body, {"x-request-id": request_id})

    assert answer.body == b"".join(chunk for chunk in sent if chunk != usage[0])
    asked = b',"stream_options":{"include_usage":true}}'
    assert _body_seen(engine, request_id) == body.rstrip()[:-1].rstrip() + asked


@pytest.mark.parametrize("said", [', "stream": false', ', "stream" : null', ""])
def test_a_request_for_a_whole_answer_differs_in_being_one_for_a_stream(
    gateway: Gateway, engine: RunningEngine, said: str
) -> None:
    request_id = new_id()
    paced = json.dumps(paced_words(tick_s=0.0, ticks=1))
    odd = ODD_REQUEST.replace(', "stream": STREAM', said).replace("PACED", paced).encode()

    answer = gateway.ask("POST", CHAT, odd, {"x-request-id": request_id})

    assert answer.json()["choices"][0]["message"]["content"] == "tick 0"
    asked = b',"stream_options":{"include_usage":true}}'
    if said:
        on = odd.replace(b"false", b"true").replace(b"null", b"true")
        assert _body_seen(engine, request_id) == on.rstrip()[:-1].rstrip() + asked
    else:
        added = b',"stream":true' + asked
        assert _body_seen(engine, request_id) == odd.rstrip()[:-1].rstrip() + added


def test_a_chunked_upload_reaches_the_engine_whole_and_with_its_length(
    gateway: Gateway, engine: RunningEngine
) -> None:
    request_id = new_id()
    body = _with_usage(chat_body(tick_s=0.0, ticks=1))

    def in_pieces() -> Iterator[bytes]:
        yield body[:1]
        yield body[1:7]
        yield body[7:]

    headers = {"x-request-id": request_id, "transfer-encoding": "chunked"}
    with Client(gateway.port) as client:
        head = [f"POST {CHAT} HTTP/1.1", "host: g", f"authorization: Bearer {GATEWAY_KEY}"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        client.send("\r\n".join([*head, "", ""]).encode())
        for piece in in_pieces():
            client.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        client.send(b"0\r\n\r\n")
        client.read_until(b"[DONE]")

    seen = engine.wait(request_id, until="ended")
    assert base64.b64decode(seen["body_b64"]) == body
    assert seen["headers"]["content-length"] == str(len(body))
    assert "transfer-encoding" not in seen["headers"]


def test_a_body_of_many_megabytes_passes(gateway: Gateway, engine: RunningEngine) -> None:
    request_id = new_id()
    body = chat_body(stream=False, tick_s=0.0) + b" " * (10 * 2**20)
    assert gateway.ask("POST", CHAT, body, {"x-request-id": request_id}).status == 200
    seen = _body_seen(engine, request_id)
    assert seen.startswith(body.rstrip()[:-1].replace(b"false", b"true"))


@pytest.mark.parametrize(
    "named",
    [{}, {"content-type": "application/x-www-form-urlencoded"}, {"content-type": "text/plain"}],
)
def test_what_was_read_as_json_reaches_the_engine_as_json(
    gateway: Gateway, engine: RunningEngine, named: dict[str, str]
) -> None:
    """`curl -d` calls every body a form, and sglang refuses what is not called JSON."""
    request_id = new_id()
    body = chat_body(stream=False, tick_s=0.0)
    assert (
        gateway.ask("POST", "/api/chat", body, {**named, "x-request-id": request_id}).status == 200
    )
    seen = engine.wait(request_id, until="ended")["headers"]
    assert seen["content-type"] == "application/json"


def test_only_named_headers_reach_the_engine(gateway: Gateway, engine: RunningEngine) -> None:
    request_id = new_id()
    body = _with_usage(chat_body(tick_s=0.0, ticks=1))
    sent = {
        "content-type": "application/json; charset=utf-8",
        "accept": "text/event-stream",
        "accept-encoding": "gzip, br",
        "connection": "x-hop",
        "x-hop": "1",
        "expect": "",
        "cookie": "session=1",
        "x-forwarded-for": "192.0.2.1",
        "proxy-authorization": "Basic eA==",
        "openai-organization": "org",
        "user-agent": "test",
        "x-request-id": request_id,
    }

    gateway.ask("POST", CHAT, body, sent)

    seen = engine.wait(request_id, until="ended")["headers"]
    assert seen == {
        "host": engine.url.removeprefix("http://"),
        "content-type": "application/json; charset=utf-8",
        "accept": "text/event-stream",
        "x-request-id": request_id,
        "authorization": f"Bearer {ENGINE_KEY}",
        "accept-encoding": "identity",
        "content-length": str(len(body)),
    }


def test_a_query_string_does_not_reach_the_engine(gateway: Gateway) -> None:
    assert gateway.ask("GET", "/v1/models?after=x").status == 200


def test_the_models_are_the_engines(gateway: Gateway) -> None:
    answer = gateway.ask("GET", "/v1/models")
    assert answer.status == 200
    assert [model["id"] for model in answer.json()["data"]] == ["paced"]


def _own(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "date"}


def test_a_stream_says_that_it_must_not_be_buffered(gateway: Gateway) -> None:
    request_id = new_id()
    answer = gateway.ask("POST", CHAT, chat_body(tick_s=0.0), {"x-request-id": request_id})
    assert _own(answer) == {
        "content-type": "text/event-stream",
        "cache-control": "no-cache, no-transform",
        "x-accel-buffering": "no",
        "transfer-encoding": "chunked",
        "x-request-id": request_id,
    }


def test_the_engines_own_refusal_passes_with_its_status_and_retry_after(gateway: Gateway) -> None:
    refusal = b'{"error": {"message":"busy","type":"rate_limit_error","param":null,"code":"full"}}'
    headers = {"retry-after": "7", "set-cookie": "a=b", "server": "engine"}
    body = chat_body(stream=False, tick_s=0.0, status=429, raw_b64=_b64([refusal]), headers=headers)
    request_id = new_id()
    answer = gateway.ask("POST", CHAT, body, {"x-request-id": request_id})
    assert (answer.status, answer.body) == (429, refusal)
    assert _own(answer) == {
        "content-type": "application/json",
        "content-length": str(len(refusal)),
        "retry-after": "7",
        "x-request-id": request_id,
    }


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b'{"a":1', b'{"a":"\xff"}'])
def test_what_is_no_json_object_never_reaches_the_engine(
    gateway: Gateway, engine: RunningEngine, body: bytes
) -> None:
    before = len(engine.seen())
    answer = gateway.ask("POST", CHAT, body)
    assert (answer.status, answer.json()["error"]["code"]) == (400, "invalid_json")
    assert len(engine.seen()) == before


@pytest.mark.parametrize("offered", ["", "a b", "x" * 129, "a/b", "é"])
def test_an_unusable_request_id_is_replaced(
    gateway: Gateway, engine: RunningEngine, offered: str
) -> None:
    headers = {"x-request-id": offered} if offered else {}
    answer = gateway.ask("POST", CHAT, chat_body(stream=False, tick_s=0.0), headers)
    made = answer.headers["x-request-id"]
    assert len(made) == 32
    assert set(made) <= set("0123456789abcdef")
    assert engine.wait(made, until="ended")["ran_to_end"]


def test_a_request_with_two_framings_is_refused(gateway: Gateway) -> None:
    with Client(gateway.port) as client:
        client.send(
            f"POST {CHAT} HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {GATEWAY_KEY}\r\n"
            "content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".encode()
        )
        assert client.read_to_close().startswith(b"HTTP/1.1 400 ")

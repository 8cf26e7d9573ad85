"""A stub engine that costs next to nothing, so that what is measured is what stands before it.

How to answer is what the user says last, which every proxy hands on: `NAME:PREFILL_S:TICK_S:TICKS`.
`GET /_left?NAME` says when (CLOCK_MONOTONIC, one for all processes) that request's connection was
lost, and whether it had run to its end by then.
"""

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import uvloop

MODEL = "stub"
INFO = {
    "/health": {},
    "/v1/models": {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "me"}]},
    "/get_server_info": {"model_path": MODEL, "served_model_name": MODEL},
    "/get_model_info": {"model_path": MODEL, "is_generation": True},
    "/server_info": {"model_path": MODEL, "served_model_name": MODEL},
    "/model_info": {"model_path": MODEL, "is_generation": True},
}
_USAGE = {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16}


@dataclass(slots=True)
class _Left:
    at_s: float | None = None
    ran_to_end: bool = False


_left: dict[str, _Left] = {}


def event(tick: int, ticks: int) -> bytes:
    """With what proxies like to lose: UTF-8, an unknown field, a null."""
    choice = {
        "index": 0,
        "delta": {"content": f"tök {tick} 😀"},
        "logprobs": None,
        "finish_reason": "stop" if tick == ticks - 1 else None,
    }
    return _event([choice])


def stream(ticks: int) -> bytes:
    """All that a client gets that asks for no usage."""
    return b"".join(event(tick, ticks) for tick in range(ticks)) + b"data: [DONE]\n\n"


def _event(choices: list[object], **more: object) -> bytes:
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": choices,
        "unknown": {"x": 1},
        **more,
    }
    text = json.dumps(chunk, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode() + b"\n\n"


def _once() -> bytes:
    delta = {"role": "assistant", "content": "ja"}
    return _event([{"index": 0, "delta": delta, "finish_reason": "stop"}])


def _whole() -> bytes:
    message = {"role": "assistant", "content": "ja"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": MODEL,
            "choices": [choice],
            "usage": _USAGE,
        }
    ).encode()


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._left: _Left | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # TCP
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a Protocol
        if self._timer is not None:
            self._timer.cancel()
        if self._left is not None:
            self._left.at_s = time.monotonic()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        length = _length(head)
        if length is None:
            if not body.endswith(b"0\r\n\r\n"):
                return
            body = unchunked(body)
        elif len(body) < length:
            return
        self._received = b"" if length is None else body[length:]
        method, target, _ = head.split(b" ", 2)
        self._answer(method, target.decode(), body if length is None else body[:length])

    def _answer(self, method: bytes, target: str, body: bytes) -> None:
        path, _, query = target.partition("?")
        if path == "/_left":
            left = _left.get(unquote(query))
            self._say(None if left is None else [left.at_s, left.ran_to_end])
        elif method == b"GET":
            self._say(INFO.get(path, {}))
        else:
            self._chat(json.loads(body))

    def _chat(self, asked: dict[str, Any]) -> None:
        name, prefill_s, tick_s, ticks = asked["messages"][-1]["content"].split(":")
        self._left = _left[name] = _Left()
        events: list[bytes] = []
        if asked.get("stream"):
            # Without any it is a whole answer for whoever asks for a stream of it.
            events = [event(tick, int(ticks)) for tick in range(int(ticks))] or [_once()]
            options = asked.get("stream_options")
            if isinstance(options, dict) and options.get("include_usage"):
                events[-1] += _event([], usage=_USAGE)
            self._timer = self._loop.call_later(
                float(prefill_s), self._start, events, float(tick_s)
            )
        else:
            delay_s = float(prefill_s) + float(tick_s) * int(ticks)
            self._timer = self._loop.call_later(delay_s, self._finish_whole)

    def _start(self, events: list[bytes], tick_s: float) -> None:
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        self._tick(events, 0, tick_s)

    def _tick(self, events: list[bytes], tick: int, tick_s: float) -> None:
        self._transport.write(_chunk(events[tick]))
        if tick + 1 < len(events):
            self._timer = self._loop.call_later(tick_s, self._tick, events, tick + 1, tick_s)
            return
        self._end()
        self._transport.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    def _finish_whole(self) -> None:
        self._end()
        self._send(_whole())

    def _end(self) -> None:
        if self._left is not None:
            self._left.ran_to_end = True
            self._left = None

    def _say(self, content: object) -> None:
        self._send(json.dumps(content).encode())

    def _send(self, body: bytes) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        self._transport.write(head.encode() + b"\r\n\r\n" + body)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _length(head: bytes) -> int | None:
    """None: chunked."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
        if line.startswith(b"transfer-encoding:"):
            return None
    return 0


def unchunked(body: bytes) -> bytes:
    whole = bytearray()
    at = 0
    while size := int(body[at : (line := body.index(b"\r\n", at))].split(b";")[0], 16):
        whole += body[line + 2 : line + 2 + size]
        at = line + 2 + size + 2
    return bytes(whole)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.install()
    asyncio.run(serve(int(sys.argv[1])))

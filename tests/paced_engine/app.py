"""The paced engine as a plain ASGI application."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from paced_engine.pace import Pace
from paced_engine.seen import Memory, Seen
from paced_engine.tokenizing import PATHS, Tokenizing

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class PacedEngine:
    def __init__(self, pace: Pace, *, api_key: str | None) -> None:
        self._pace = pace
        self._api_key = api_key
        self._health_status = 200
        self._tokenizing = Tokenizing()
        self.memory = Memory()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            message = f"this application does not speak {scope['type']}"
            raise RuntimeError(message)
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        match scope["method"], scope["path"]:
            case "GET", "/health":
                await _send_json(send, self._health_status, {"status": self._health_status})
            case "POST", "/_health":
                self._health_status = int(await _read(receive))
                await _send_json(send, 200, {})
            case "POST", "/_tokenizing":
                self._tokenizing = Tokenizing(**json.loads(await _read(receive)))
                await _send_json(send, 200, {})
            case "GET", "/_seen":
                await self._tell(scope, send)
            case _ if self._api_key and headers.get("authorization") != f"Bearer {self._api_key}":
                await _send_json(send, 401, _error("wrong key", 401))
            case method, path:
                await self._answer(method, path, headers, receive, send)

    async def _tell(self, scope: Scope, send: Send) -> None:
        """All requests; or `?request=ID` once it has `until=started|ended` and `ticks=N`."""
        query = {
            name: values[-1] for name, values in parse_qs(scope["query_string"].decode()).items()
        }
        if "request" not in query:
            await _send_json(send, 200, [seen.as_json() for seen in self.memory.requests])
            return
        request_id = query["request"]

        def reached() -> bool:
            seen = self.memory.find(request_id)
            if seen is None or seen.ticks < int(query.get("ticks", "0")):
                return False
            return seen.ended if query.get("until") == "ended" else seen.started

        in_time = await self.memory.wait_for(reached, float(query.get("within_s", "10")))
        seen = self.memory.find(request_id)
        status = 200 if in_time else 504
        await _send_json(send, status, None if seen is None else seen.as_json())

    async def _answer(
        self, method: str, path: str, headers: dict[str, str], receive: Receive, send: Send
    ) -> None:
        request_id = headers.get("x-request-id", f"unnamed-{len(self.memory.requests)}")
        seen = Seen(request_id=request_id, path=path, headers=headers)
        await self.memory.change(lambda: self.memory.requests.append(seen))
        seen.body = await _read(receive)
        match method, path:
            case "POST", "/abort_request":
                engine_id = json.loads(seen.body)["rid"]
                await self.memory.change(lambda: self.memory.abort(engine_id))
                # Who hears of it sends the next one at once.
                await self.memory.wait_for(self.memory.aborted_have_ended, within_s=10)
                await _send_json(send, 200, {})
            case "GET", "/v1/models":
                model = {
                    "id": self._pace.model,
                    "object": "model",
                    "created": 0,
                    "owned_by": "paced",
                }
                await _send_json(send, 200, {"object": "list", "data": [model]})
            case "POST", "/v1/chat/completions" | "/v1/completions":
                await self._chat(seen, receive, send)
            case "POST", _ if path in PATHS:
                await self._count(seen, send)
            case _:
                await _send_json(send, 404, _error(f"no {method} {path}", 404))

    async def _count(self, seen: Seen, send: Send) -> None:
        counts = self._tokenizing
        await asyncio.sleep(counts.delay_s)
        if counts.status == 200:
            await _send_json(send, 200, counts.answer(seen.path, seen.body))
        else:
            await _send_json(send, counts.status, _error("not counted", counts.status))

    async def _chat(self, seen: Seen, receive: Receive, send: Send) -> None:
        try:
            pace, stream = self._pace.over(seen.body)
        except ValueError as error:
            await _send_json(send, 400, _error(f"not a request: {error}", 400))
            return
        if stream and not pace.streams:
            await _send_json(send, 400, _error("logprobs is not supported with stream", 400))
            return
        seen.engine_id = json.loads(seen.body).get("rid")
        seen.beside = sum(each.started and not each.ended for each in self.memory.requests)
        leaving = _aborted(self.memory, seen) if pace.ignores_leaving else _disconnected(receive)
        gone = asyncio.create_task(leaving)
        run = _Run(memory=self.memory, seen=seen, pace=pace, gone=gone, send=send)
        try:
            # A refusal is no stream, whatever was asked.
            await (run.stream() if stream and pace.status == 200 else run.whole())
        finally:
            gone.cancel()
            await self.memory.change(run.end)


class _Run:
    """One answer being generated; it ends in the middle of any wait when the client is gone."""

    def __init__(
        self,
        *,
        memory: Memory,
        seen: Seen,
        pace: Pace,
        gone: asyncio.Task[None],
        send: Send,
    ) -> None:
        self._memory = memory
        self._seen = seen
        self._pace = pace
        self._gone = gone
        self._send = send

    async def stream(self) -> None:
        if not await self._prefilled():
            return
        started = False
        for tick, chunk in enumerate(self._chunks()):
            if self._pace.cut_at_tick == tick:
                await self._cut()
                return
            if not started:
                await self._start("text/event-stream")
                started = True
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
            await self._memory.change(self._count_tick)
            if await self._left_within(self._pace.tick_s):
                return
        last = b"data: [DONE]\n\n" if self._pace.says_done and self._pace.raw_b64 is None else b""
        self._seen.ran_to_end = True
        await self._send({"type": "http.response.body", "body": last, "more_body": False})

    async def whole(self) -> None:
        if not await self._prefilled():
            return
        for tick in range(self._pace.ticks):
            if self._pace.cut_at_tick == tick == 0:
                await self._cut()
                return
            await self._memory.change(self._count_tick)
            if await self._left_within(self._pace.tick_s):
                return
        body = b"".join(self._raw() or [json.dumps(self._completion()).encode()])
        await self._start("application/json", length=len(body))
        if self._pace.cut_at_tick is not None:
            half = body[: len(body) // 2]
            await self._send({"type": "http.response.body", "body": half, "more_body": True})
            await self._cut()
            return
        self._seen.ran_to_end = True
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def end(self) -> None:
        self._seen.ended = True

    def _begin(self) -> None:
        self._seen.started = True

    def _count_tick(self) -> None:
        self._seen.ticks += 1

    async def _prefilled(self) -> bool:
        await self._memory.change(self._begin)
        return not await self._left_within(self._pace.prefill_s)

    async def _left_within(self, seconds: float) -> bool:
        done, _ = await asyncio.wait({self._gone}, timeout=seconds)
        if done:
            self._seen.closed_at_tick = self._seen.ticks
        return bool(done)

    async def _start(self, content_type: str, length: int | None = None) -> None:
        headers = {"content-type": content_type, **self._pace.headers}
        if length is not None:
            headers["content-length"] = str(length)
        await _send_start(self._send, self._pace.status, headers)

    async def _cut(self) -> None:
        """Drops the connection as a killed process does. ASGI has no word for it; uvicorn has."""
        cycle: Any = getattr(self._send, "__self__")  # noqa: B009 - the type does not say so
        cycle.transport.abort()
        await self._gone

    def _raw(self) -> list[bytes] | None:
        if self._pace.raw_b64 is None:
            return None
        return [base64.b64decode(chunk) for chunk in self._pace.raw_b64]

    def _chunks(self) -> list[bytes]:
        if (raw := self._raw()) is not None:
            return raw
        pad = "x" * self._pace.pad_bytes
        return [self._event(tick, pad) for tick in range(self._pace.ticks)]

    def _event(self, tick: int, pad: str) -> bytes:
        text = f"tick {tick}{pad}" if tick == 0 else f" tick {tick}{pad}"
        finish = "stop" if tick == self._pace.ticks - 1 else None
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
        chunk = {**self._envelope("chat.completion.chunk"), "choices": [choice]}
        return b"data: " + json.dumps(chunk).encode() + b"\n\n"

    def _completion(self) -> dict[str, Any]:
        text = " ".join(f"tick {tick}" for tick in range(self._pace.ticks))
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {**self._envelope("chat.completion"), "choices": [choice]}

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._seen.request_id,
            "object": kind,
            "created": 0,
            "model": self._pace.model,
        }


async def _read(receive: Receive) -> bytes:
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            break
    return body


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _aborted(memory: Memory, seen: Seen) -> None:
    await memory.wait_for(lambda: seen.aborted, within_s=3600)


async def _send_start(send: Send, status: int, headers: dict[str, str]) -> None:
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


async def _send_json(send: Send, status: int, content: object) -> None:
    body = json.dumps(content).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    await _send_start(send, status, headers)
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _error(message: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": "paced_engine_error", "code": code}}

"""The HTTP interface, in plain ASGI: which path does what, and who may."""

import dataclasses
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping

from kt_legacy_engine import replies
from kt_legacy_engine.answering import Answering
from kt_legacy_engine.asgi import (
    ClientLeft,
    Receive,
    Scope,
    Send,
    admits,
    answer,
    answer_error,
    answer_json,
    header,
    read_body,
)
from kt_legacy_engine.asking import Asking
from kt_legacy_engine.desk import Desk
from kt_legacy_engine.errors import ApiError, no_key
from kt_legacy_engine.replies import ChatShape, CompletionShape
from kt_legacy_engine.requests import read_abort, read_chat, read_completion, read_tokenize
from kt_legacy_engine.stage import Stage

_OPEN = "/health"
_MODELS = "/v1/models"
_RID_LETTERS = 200

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


class App:
    def __init__(self, desk: Desk, asking: Asking, *, key: str) -> None:
        self._desk = desk
        self._asking = asking
        self._key = key
        self._created = int(time.time())
        self._routes: Mapping[str, tuple[str, Handler]] = {
            _OPEN: ("GET", self._health),
            "/metrics": ("GET", self._metrics),
            _MODELS: ("GET", self._models),
            f"{_MODELS}/{asking.model_name}": ("GET", self._model),
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completion),
            "/tokenize": ("POST", self._tokenize),
            "/abort_request": ("POST", self._abort),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # No start-up and shut-down events, and no web sockets.
            return
        try:
            handler = self._handler(scope)
            await handler(scope, receive, send)
        except ApiError as error:
            await answer_error(send, error)
        except ClientLeft:
            pass

    def _handler(self, scope: Scope) -> Handler:
        path, method = scope["path"], scope["method"]
        if path != _OPEN and not admits(self._key, header(scope, b"authorization")):
            raise no_key()
        if path not in self._routes:
            raise ApiError(404, "unknown_url", f"There is no {method} {path} here.")
        allowed, handler = self._routes[path]
        if method != allowed and (method, allowed) != ("HEAD", "GET"):
            raise ApiError(
                405,
                "method_not_allowed",
                f"{path} does not answer {method}; it answers {allowed}.",
                headers=(("allow", allowed),),
            )
        return handler

    async def _health(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        progress = self._desk.progress
        await answer_json(send, 200 if progress.stage is Stage.READY else 503, progress.record())

    async def _metrics(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        text = self._desk.metrics_text().encode()
        await answer(send, 200, text, "text/plain; version=0.0.4")

    async def _models(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        asking = self._asking
        await answer(
            send, 200, replies.models(asking.model_name, self._created, asking.context_tokens)
        )

    async def _model(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        asking = self._asking
        await answer(
            send, 200, replies.model(asking.model_name, self._created, asking.context_tokens)
        )

    async def _abort(self, _scope: Scope, receive: Receive, send: Send) -> None:
        rid = read_abort(await read_body(receive)).rid
        # The client's own id, which may begin so too, or the reply's.
        ids = (rid, rid.removeprefix("chatcmpl-"), rid.removeprefix("cmpl-"))
        await answer_json(send, 200, {"aborted": any(map(self._desk.abort, ids))})

    async def _tokenize(self, _scope: Scope, receive: Receive, send: Send) -> None:
        found = await self._asking.tokenized(read_tokenize(await read_body(receive)))
        await answer_json(send, 200, dataclasses.asdict(found))

    async def _chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = read_chat(await read_body(receive))
        ask = await self._asking.chat(request)
        rid = _rid(scope, request.rid)
        shape = ChatShape(
            id_=f"chatcmpl-{rid}",
            model=self._asking.model_name,
            created=int(time.time()),
            tokenizer=self._asking.tokenizer,
        )
        await Answering(self._desk, shape, request).answer(ask, rid, scope, receive, send)

    async def _completion(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = read_completion(await read_body(receive))
        ask = await self._asking.completion(request)
        rid = _rid(scope, request.rid)
        shape = CompletionShape(
            id_=f"cmpl-{rid}",
            model=self._asking.model_name,
            created=int(time.time()),
            tokenizer=self._asking.tokenizer,
        )
        await Answering(self._desk, shape, request).answer(ask, rid, scope, receive, send)


def _rid(scope: Scope, said: str | None) -> str:
    """Printable and short, since it goes into the log: anything else is replaced by our own."""
    offered = said or header(scope, b"x-request-id") or ""
    if 0 < len(offered) <= _RID_LETTERS and offered.isascii() and offered.isprintable():
        return offered
    return uuid.uuid4().hex

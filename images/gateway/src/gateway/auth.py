"""Who may pass: a key, checked before a byte of the body is read, becomes the caller in scope."""

from collections.abc import Awaitable, Iterator

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.arrival_errors import TOO_MANY_CONNECTIONS
from gateway.asgi import SHOWS_KEY, send_refusal
from gateway.dialects.table import voice_of
from gateway.errors import NO_KEY, Refused
from gateway.keys import KeyRing

OPEN_PATHS = frozenset({"/healthz", "/readyz"})


class Authenticated:
    """Refuses every request without a key, also to unknown paths; not on the open ones."""

    def __init__(self, app: ASGIApp, keys: KeyRing) -> None:
        self._app = app
        self._keys = keys

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                self._admit(scope)
            except Refused as refused:
                return send_refusal(send, voice_of(scope["path"]).refusal(refused.error))
        return self._app(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        scope["caller"] = caller = self._keys.admit(_offered(scope))
        if not scope.get(SHOWS_KEY, _always)(caller.key_id):
            raise Refused(TOO_MANY_CONNECTIONS)


def _always(_key_id: str) -> bool:
    return True


def _offered(scope: Scope) -> bytes:
    """The key that the request carries, as OpenAI's, Anthropic's and Ollama's clients send it.

    Whoever sends two that differ may have been told by somebody else what to send.
    """
    keys = {key for name, value in scope["headers"] for key in _key_in(name, value)}
    if len(keys) != 1:
        raise Refused(NO_KEY)
    return keys.pop()


def _key_in(name: bytes, value: bytes) -> Iterator[bytes]:
    if name == b"x-api-key":
        yield value.strip(b" ")
    elif name == b"authorization":
        scheme, _, key = value.partition(b" ")
        if scheme.lower() != b"bearer":
            raise Refused(NO_KEY)
        yield key.strip(b" ")

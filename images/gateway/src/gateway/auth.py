"""Who may pass: a bearer key, compared in constant time, before a byte of the body is read."""

import hashlib
import secrets
from collections.abc import Iterable

from pydantic import SecretStr
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.asgi import header, send_error
from gateway.errors import NO_KEY

OPEN_PATHS = frozenset({"/healthz", "/readyz"})


class Keys:
    """The accepted keys, held as digests so that every comparison is of equal length."""

    def __init__(self, keys: Iterable[SecretStr]) -> None:
        self._digests = tuple(_digest(key.get_secret_value().encode("ascii")) for key in keys)

    def admit(self, authorization: bytes | None) -> bool:
        """True for `Bearer KEY` with an accepted key."""
        scheme, _, key = (authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return False
        offered = _digest(key.strip(b" "))
        return any(secrets.compare_digest(offered, digest) for digest in self._digests)


class Authenticated:
    """Answers 401 to every request without a key, also to unknown paths; not on the open ones."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["path"] in OPEN_PATHS
            or self._keys.admit(header(scope, b"authorization"))
        ):
            await self._app(scope, receive, send)
            return
        await send_error(send, NO_KEY)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()

"""What an API has to tell the exchange about itself."""

from collections.abc import Sequence
from typing import Protocol

from gateway.engine_request import EngineRequest
from gateway.errors import Headers, Voice
from gateway.filters import Filter
from gateway.policy import Policy


class Dialect(Voice, Protocol):
    """One route. Has no state of its own: what lasts for one answer lives in its filters."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    def read(self, body: bytes, policy: Policy) -> EngineRequest:
        """The client's request as one to the engine, before `shaped`; Refused if it is none."""

    def filters(self, asked: EngineRequest, policy: Policy) -> Sequence[Filter]:
        """What the engine's stream goes through; empty: its bytes as they are."""

    def stream_headers(self, headers: Headers) -> Headers:
        """The headers of a stream, made of those of the engine's."""

    def whole(self, asked: EngineRequest, status: int, body: bytes, policy: Policy) -> bytes:
        """An answer without stream, also the engine's own refusals."""

    def comment(self, text: str) -> bytes:
        """A sign of life that clients of this API skip in a stream; empty where it has none."""

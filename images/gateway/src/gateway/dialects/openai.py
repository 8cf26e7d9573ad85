"""OpenAI's API, which is the engine's own: what has no reason to change passes byte for byte."""

from collections.abc import Sequence

from gateway.engine_request import EngineRequest, read_object
from gateway.errors import Headers, OpenAIVoice
from gateway.filters import Filter
from gateway.policy import Policy


class _OpenAI(OpenAIVoice):
    def filters(self, asked: EngineRequest, policy: Policy) -> Sequence[Filter]:  # noqa: ARG002 - a Dialect
        return ()

    def stream_headers(self, headers: Headers) -> Headers:
        return headers

    def whole(self, asked: EngineRequest, status: int, body: bytes, policy: Policy) -> bytes:  # noqa: ARG002 - a Dialect
        return body

    def comment(self, text: str) -> bytes:
        return f": {text}\n\n".encode()


class Chat(_OpenAI):
    method = "POST"
    path = "/v1/chat/completions"

    def read(self, body: bytes, policy: Policy) -> EngineRequest:  # noqa: ARG002 - a Dialect
        parsed = read_object(body)
        return EngineRequest(
            method=self.method,
            path=self.path,
            body=body,
            parsed=parsed,
            stream=parsed.get("stream") is True,
        )


class Models(_OpenAI):
    method = "GET"
    path = "/v1/models"

    def read(self, body: bytes, policy: Policy) -> EngineRequest:  # noqa: ARG002 - a Dialect
        return EngineRequest(method=self.method, path=self.path, admitted=False)

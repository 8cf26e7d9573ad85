"""What Ollama's clients ask about models: the one there is, from the profile."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from typing import Any

import orjson

from gateway.dialects.ollama import OllamaVoice
from gateway.dialects.ollama_request import plain_name
from gateway.dialects.openai import MODELS_PATH
from gateway.engine_refusals import engine_error
from gateway.engine_request import EngineRequest, read_object
from gateway.errors import Headers, Refused
from gateway.fields import TEXT, Fields
from gateway.filters import Filter
from gateway.policy import Policy
from gateway.request_errors import model_not_found

SPOKEN_VERSION = "0.12.6"
"""The Ollama whose API this is: clients ask in order to know what they may use."""

SHOW_FIELDS = Fields({"model": TEXT, "name": TEXT}, one_of=("model", "name"))

_NEVER = "1970-01-01T00:00:00Z"
_DETAILS = {
    "parent_model": "",
    "format": "",
    "family": "",
    "families": [],
    "parameter_size": "",
    "quantization_level": "",
}


@dataclass(frozen=True, slots=True)
class _Asking(OllamaVoice):
    """A route without an answer of the engine's to change."""

    path: str
    method: str

    def filters(self, asked: EngineRequest, policy: Policy) -> Sequence[Filter]:  # noqa: ARG002 - a Dialect
        return ()

    def stream_headers(self, headers: Headers) -> Headers:
        return headers

    def whole(self, asked: EngineRequest, status: int, body: bytes, policy: Policy) -> bytes:  # noqa: ARG002 - a Dialect
        return body

    def comment(self, text: str) -> bytes:  # noqa: ARG002 - a Dialect
        return b""


@dataclass(frozen=True, slots=True)
class Listing(_Asking):
    """The models as /v1/models has them, each told in Ollama's way."""

    tell: Callable[[str], Mapping[str, Any]]

    def read(self, body: bytes, policy: Policy) -> EngineRequest:  # noqa: ARG002 - a Dialect
        name = policy.model.public
        answer = None if name is None else self._listed([name])
        return EngineRequest(method="GET", path=MODELS_PATH, admitted=False, answer=answer)

    def whole(self, asked: EngineRequest, status: int, body: bytes, policy: Policy) -> bytes:  # noqa: ARG002 - a Dialect
        if status >= HTTPStatus.BAD_REQUEST:
            return self.refusal(engine_error(status, body)).body
        return self._listed([str(model["id"]) for model in orjson.loads(body)["data"]])

    def _listed(self, names: list[str]) -> bytes:
        return orjson.dumps({"models": [self.tell(name) for name in names]})


class Show(_Asking):
    def read(self, body: bytes, policy: Policy) -> EngineRequest:
        parsed = read_object(body)
        SHOW_FIELDS.check(parsed)
        asked: str = parsed["name"] if parsed.get("model") is None else parsed["model"]
        name = policy.model.public or plain_name(asked)
        if plain_name(asked) != name:
            raise Refused(model_not_found(asked, name))
        answer = orjson.dumps(_shown(policy))
        return EngineRequest(method="GET", path=MODELS_PATH, admitted=False, answer=answer)


class Version(_Asking):
    def read(self, body: bytes, policy: Policy) -> EngineRequest:  # noqa: ARG002 - a Dialect
        answer = orjson.dumps({"version": SPOKEN_VERSION})
        return EngineRequest(method="GET", path=MODELS_PATH, admitted=False, answer=answer)


def listed(name: str) -> dict[str, Any]:
    digest = sha256(name.encode()).hexdigest()
    there = {"name": name, "model": name, "modified_at": _NEVER, "size": 0, "digest": digest}
    return {**there, "details": _DETAILS}


def running(name: str) -> dict[str, Any]:
    """It stays: nothing here unloads a model on its own."""
    digest = sha256(name.encode()).hexdigest()
    there = {"name": name, "model": name, "size": 0, "digest": digest, "details": _DETAILS}
    return {**there, "expires_at": "2318-01-01T00:00:00Z", "size_vram": 0}


def _shown(policy: Policy) -> dict[str, Any]:
    can = {"completion": True, "tools": policy.capabilities.tools}
    info: dict[str, Any] = {"general.architecture": "appliance"}
    if policy.model.context_tokens is not None:
        info["appliance.context_length"] = policy.model.context_tokens
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _DETAILS,
        "model_info": info,
        "capabilities": [name for name, has in can.items() if has],
        "modified_at": _NEVER,
    }


TAGS = Listing("/api/tags", "GET", listed)
PS = Listing("/api/ps", "GET", running)
SHOW = Show("/api/show", "POST")
VERSION = Version("/api/version", "GET")

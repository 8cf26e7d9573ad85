"""What clients ask for: OpenAI's chat and completions, as far as this engine can do it.

What it can't do is refused. Fields that change nothing about the reply may hold anything.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kt_legacy_engine.errors import ApiError, bad_request

_AT_MOST_STOPS = 16
_AT_MOST_ALTERNATIVES = 20
# The largest seed of OpenAI's API is a signed 64-bit number.
_SEED = 2**63

_Token = Annotated[int, Field(ge=0)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class StreamOptions(_Table):
    include_usage: bool | None = None


class Part(_Table):
    type: Literal["text"]
    text: str


class Message(_Table):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None

    def plain(self) -> dict[str, str]:
        content = self.content or ""
        if not isinstance(content, str):
            content = "".join(part.text for part in content)
        # Newer clients say developer for what chat templates know as system.
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class _Common(_Table):
    """What both kinds share. None: the client does not mind.

    `rid`: the request's id, by which it can be aborted. `ignore_eos`, `min_tokens`, `top_k`: not
    OpenAI's, for measuring. `top_k` -1 and 0: all.
    """

    model: str
    max_tokens: int | None = Field(None, ge=1)
    min_tokens: int = Field(0, ge=0)
    ignore_eos: bool = False
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    seed: int | None = Field(None, ge=-_SEED, lt=_SEED)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[_Token, Annotated[float, Field(ge=-100, le=100)]] | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    rid: str | None = Field(None, min_length=1, max_length=200)

    @property
    def stops(self) -> tuple[str, ...]:
        said = self.stop or ()
        return (said,) if isinstance(said, str) else tuple(said)

    @property
    def limit(self) -> int | None:
        return self.max_tokens

    @property
    @abstractmethod
    def alternatives(self) -> int | None: ...

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class ResponseFormat(_Table):
    type: Literal["text"]


class ChatRequest(_Common):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=_AT_MOST_ALTERNATIVES)
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    response_format: ResponseFormat | None = None

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def alternatives(self) -> int | None:
        return self.top_logprobs or 0 if self.logprobs else None


class CompletionRequest(_Common):
    prompt: str | list[int] | Annotated[list[str], Field(min_length=1, max_length=1)]
    logprobs: int | None = Field(None, ge=0, le=_AT_MOST_ALTERNATIVES)
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    suffix: Literal[""] | None = None

    @property
    def alternatives(self) -> int | None:
        return self.logprobs


Request = ChatRequest | CompletionRequest


def read_chat(body: bytes) -> ChatRequest:
    try:
        return ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise _refused(error) from None


def read_completion(body: bytes) -> CompletionRequest:
    try:
        return CompletionRequest.model_validate_json(body)
    except ValidationError as error:
        raise _refused(error) from None


class TokenizeRequest(_Table):
    """One of both."""

    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    prompt: str | None = None


def read_tokenize(body: bytes) -> TokenizeRequest:
    try:
        request = TokenizeRequest.model_validate_json(body)
    except ValidationError as error:
        raise _refused(error) from None
    if (request.messages is None) == (request.prompt is None):
        raise bad_request("Either messages or a prompt is needed, not both.", "messages")
    return request


class Abort(_Table):
    rid: str = Field(min_length=1)


def read_abort(body: bytes) -> Abort:
    try:
        return Abort.model_validate_json(body)
    except ValidationError as error:
        raise _refused(error) from None


def check(request: Request) -> None:
    """What no single field shows."""
    if len(request.stops) > _AT_MOST_STOPS:
        raise bad_request(f"At most {_AT_MOST_STOPS} stop strings are possible.", "stop")
    if isinstance(request, ChatRequest) and request.top_logprobs and not request.logprobs:
        raise bad_request("top_logprobs needs logprobs.", "top_logprobs")
    if request.stream_options is not None and not request.stream:
        raise bad_request("stream_options needs stream.", "stream_options")


def _refused(error: ValidationError) -> ApiError:
    """Names the field, and nothing of what the client sent."""
    found: Mapping[str, Any] = error.errors(include_url=False, include_input=False)[0]
    # Of a field with several forms the form is a step too: `str`, `list[int]`.
    steps = [str(step) for step in found["loc"] if step != "str"]
    place = ".".join(step for step in steps if not step.startswith("list["))
    return bad_request(f"{place or 'the body'}: {found['msg']}", place or None)
